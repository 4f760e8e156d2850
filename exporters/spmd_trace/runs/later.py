"""The steps after the recorded one, of ranks that have run up to it together and go on.

Copies of a parameter that have drifted apart may come together again, where ranks train models of
their own and average them now and then. Others drift apart only later, as where the last
micro-batches of an epoch are fewer than the gradients are summed for. Each rank writes a row where
a later step begins (`torch.script.child.Later`): the number of steps taken, and of each parameter a
digest and a sketch (`torch.script.evidence`). Its last row is empty, once the script is over.
"""

import json
import pathlib
import time

from ..document import text
from ..ranks import beyond_rounding, line_of
from . import process

FILE = "later.jsonl"
MOST = 10.0  # seconds for which a rank writes rows
_AFTERWARDS = 2.0  # seconds to wait for more when all else is done, if the step came sooner
_MANY = 16  # steps after which copies that differ are not expected to come together


class Rows:
    """What the ranks of a run have written so far."""

    def __init__(self, folders: dict[int, pathlib.Path], run: process.Forked, seconds: float):
        """`folders`: by rank, where its rows are; `seconds`: that it took to come to the step."""
        self._files = {rank: folder / FILE for rank, folder in folders.items()}
        self._ends = dict.fromkeys(folders, 0)  # of what was read of each, in bytes
        self._run, self._began = run, time.monotonic()
        self._patience = max(_AFTERWARDS, min(seconds, MOST))
        self.ranks: dict[int, list[dict]] = {rank: [] for rank in folders}

    def is_of(self, run: process.Forked) -> bool:
        return self._run is run

    def end(self) -> None:
        self._run.end()

    @property
    def over(self) -> bool:
        """Whether the script is over on all ranks."""
        return all(rows and not rows[-1] for rows in self.ranks.values())

    def come_together(self, names: set[str]) -> set[str]:
        """Those of some parameters that are equal on all ranks again where a later step begins.
        It is waited for."""
        found: set[str] = set()
        until = self._began + MOST + 2
        while names - found and self._read(until):
            for rows in self._steps(list(self.ranks)).values():
                found |= {name for name in names if _equal(name, rows)}
        return found

    def drift(self, kinds: dict[str, dict[str, str]], axes: list, rank: int) -> dict[str, dict]:
        """By parameter, and by axis: the first step after which the copies along it differ, and go
        on to, of what is equal there by its kind. `axes`: names, sizes, strides.
        """
        until = time.monotonic() + self._patience
        while not self.over and self._read(until):
            pass
        found: dict[str, dict] = {}
        for axis, size, stride in axes:
            ranks = line_of(rank, size, stride)
            # Where ranks take unequal numbers of steps, as with uneven data, equal numbers are not
            # the same place in the script.
            if self.over and len({self._taken(one) for one in ranks}) > 1:
                continue
            steps = self._steps(ranks)
            for name, of in kinds.items():
                if of.get(axis, "V") != "V" and (step := self._apart_since(name, steps)):
                    found.setdefault(name, {})[axis] = step
        return found

    def _taken(self, rank: int) -> int:
        return max((row["step"] for row in self.ranks.get(rank, []) if row), default=0)

    def _apart_since(self, name: str, steps: dict[int, list[dict]]) -> int | None:
        apart = [step for step, rows in steps.items() if _differs(name, rows)]
        # Whether the recorded step has moved them apart is for the checker to say.
        before = [step for step in steps if not apart or step < apart[0]]
        lasting = apart and before and len(before) + len(apart) == len(steps)
        return apart[0] if lasting and (self.over or len(apart) >= _MANY) else None

    def _steps(self, ranks: list[int]) -> dict[int, list[dict]]:
        """By the number of steps taken, in order: a row of each of these ranks, where all have
        one."""
        named = [{row["step"]: row for row in self.ranks.get(one, []) if row} for one in ranks]
        return {
            step: [of[step] for of in named] for step in named[0] if all(step in of for of in named)
        }

    def _read(self, until: float) -> bool:
        """Reads what is there, after a moment; whether more may come."""
        done = self._run.poll() is not None or time.monotonic() >= until
        for rank, file in self._files.items():
            self.ranks[rank] += self._more(rank, file)
        if done or self.over:
            return False
        time.sleep(0.05)
        return True

    def _more(self, rank: int, file: pathlib.Path) -> list[dict]:
        """The rows that have come since; the last one may be half written."""
        if not file.exists():
            return []
        with file.open("rb") as rows:
            rows.seek(self._ends[rank])
            whole, end, _ = rows.read().rpartition(b"\n")
        self._ends[rank] += len(whole + end)
        return [json.loads(row) for row in whole.splitlines()]


def state(trace: pathlib.Path, found: dict[str, dict]) -> None:
    """Writes into the parameters of a trace which ones drift apart later."""
    document = json.loads(trace.read_text(encoding="utf-8"))
    for param in document["params"]:
        if param.get("role") == "param" and (steps := found.get(param.get("name"))):
            param["drifts_later"] = sorted(steps)
            param["drift_step"] = min(steps.values())
    trace.write_text(text(document), encoding="utf-8")


def _equal(name: str, rows: list[dict]) -> bool:
    digests = {row["digests"].get(name) for row in rows}
    return len(digests) == 1 and None not in digests


def _differs(name: str, rows: list[dict]) -> bool:
    if len({row["digests"].get(name) for row in rows}) == 1:
        return False
    return beyond_rounding([row["sketches"].get(name, []) for row in rows])
