"""Which versions of frameworks are too old for recordings."""

import importlib.metadata
import re

_OLDEST = {"torch": (2, 6), "jax": (0, 6)}  # what differs between later ones: versions.py of each


def too_old(package: str) -> str:
    """A sentence about the version that is installed; empty if it can be used."""
    found = importlib.metadata.version(package)
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) >= _OLDEST[package]:
        return ""
    oldest = ".".join(map(str, _OLDEST[package]))
    return f"{package} {found} is too old for recordings: pip install '{package}>={oldest}'"
