"""What is known of a public bug of a framework."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Known:
    """One bug: where it was reported, what shows it, and the same program without it."""

    what: str
    link: str
    config: Any  # of the framework's own kind
    mistake: Callable | None = None  # None: the installed version makes it
    repair: Callable | None = None  # None: the program without the mistake is right

    def recorded(self, patch: Callable | None):
        """The program while the patch is in force."""
        raise NotImplementedError

    def record(self):
        """The program that makes the mistake."""
        return self.recorded(self.mistake)

    def record_repaired(self):
        """The same program without it."""
        return self.recorded(self.repair)
