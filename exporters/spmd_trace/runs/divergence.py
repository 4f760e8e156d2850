"""Ranks that do not call the same collectives, seen while all of them run.

Each rank writes a line before each collective that it calls (`torch.script.calls`). The ranks of a
group have to call the same ones in the same order, and what one sends another has to receive:
where two lists part, or where one ends and the others wait, is a finding of the trace
(`rank-divergence`), with the way by which each came there.
"""

import dataclasses
import json
import os
import pathlib
import re
import signal
import time

from ..document import text
from ..locations import PACKAGE, file_entry
from . import process

_QUIET = 3.0  # seconds without a sign of life, before a rank is asked where it is


@dataclasses.dataclass
class Side:
    """What some ranks do where others do something else."""

    ranks: list[int]
    words: str  # what they do there
    stack: list[dict]  # frames, innermost first; none where the script has ended

    def who(self) -> str:
        return f"rank{'s' * (len(self.ranks) > 1)} {', '.join(map(str, self.ranks))}"

    def way(self) -> str:
        """By which lines they came there."""
        return ", ".join(map(_frame, self.stack)) or "the script has ended"


@dataclasses.dataclass
class Divergence:
    """One collective that some ranks of a group call, and what others do instead."""

    call: Side
    instead: Side
    complete: bool = True  # whether all ranks of the group have come to this call

    def statement(self, loc: int | None) -> dict:
        at = f" at {_place(self.instead.stack[0])}" if self.instead.stack else ""
        words = {"call": self.call.words, "ranks": self.call.who()}
        words |= {"instead": self.instead.words + at, "others": self.instead.who()}
        words |= {"stack": self.call.way(), "other_stack": self.instead.way()}
        place = {} if loc is None else {"loc": loc}
        return {"op": "diverge", "attrs": words} | place

    def sentence(self) -> str:
        words = self.statement(None)["attrs"]
        call, ranks, instead, others = (
            words[key] for key in ("call", "ranks", "instead", "others")
        )
        return f"{_place(self.call.stack[0])}: {call} of {ranks} meets {instead} of {others}"


def _place(frame: dict) -> str:
    return f"{frame['file']}:{frame['line']}"


def _frame(frame: dict) -> str:
    inside = "" if frame["func"] == "<module>" else f" in {frame['func']}"
    return _place(frame) + inside


def _call(row: dict) -> str:
    return f"`{row['call']}({row['about']})`"


def _listed(row: dict) -> str:
    return f" over ranks {', '.join(map(str, row['group'][1]))}"


def parted(logs: dict[int, list[dict]]) -> Divergence | None:
    """The first call of a group that is another one on some of its ranks, as far as they are; the
    first message that is received as another one than was sent.
    """
    for (source, target, _), (sent, received) in _messages(logs).items():
        for one, other in zip(sent, received):
            if one["message"]["size"] != other["message"]["size"]:
                return Divergence(_message(source, one), _message(target, other))
    for calls in [*_chosen(logs), *_by_group(logs).values()]:
        for place in range(max(map(len, calls.values()), default=0)):
            rows = {rank: one[place] for rank, one in calls.items() if len(one) > place}
            ranks: dict[tuple, list[int]] = {}
            for rank, row in rows.items():
                ranks.setdefault((row["call"], row["about"]), []).append(rank)
            if len(ranks) > 1:
                # What most do is what is meant.
                most, others = sorted(ranks.values(), key=len, reverse=True)[:2]
                complete = len(rows) == len(calls)
                return Divergence(_side(rows, most), _side(rows, others), complete)
    return None


def _chosen(logs: dict[int, list[dict]]) -> list[dict[int, list[dict]]]:
    """What each rank has chosen by itself, of one line of the script at a time."""
    found: dict[str, dict[int, list[dict]]] = {}
    for rank, rows in logs.items():
        for row in rows:
            if row.get("chosen") and row["stack"]:
                found.setdefault(_frame(row["stack"][0]), {}).setdefault(rank, []).append(row)
    return list(found.values())


def _together(logs: dict[int, list[dict]]) -> dict[int, list[dict]]:
    """What ranks do with each other: not what each has chosen by itself."""
    return {rank: [row for row in rows if not row.get("chosen")] for rank, rows in logs.items()}


def _side(rows: dict[int, dict], ranks: list[int]) -> Side:
    row = rows[ranks[0]]
    return Side(ranks, _call(row), row["stack"])


def left_waiting(logs: dict[int, list[dict]]) -> Divergence | None:
    """A call that some ranks of a group have reached and others do not: all wait, or have ended."""
    logs = _together(logs)
    for key, calls in _by_group(logs).items():
        reached = min(map(len, calls.values()))
        waiting = [rank for rank, one in calls.items() if len(one) > reached]
        missing = [rank for rank in calls if rank not in waiting]
        last = logs[missing[0]][-1] if missing and logs[missing[0]] else {}
        # A rank that has not moved since its last call of this group waits for something else.
        same = not last.get("end") and tuple(last.get("group", [None])[:1]) == key[:1]
        if not waiting or not last or (same and not last.get("message")):
            continue
        agreeing = [rank for rank in missing if logs[rank] and _same(logs[rank][-1], last)]
        row = calls[waiting[0]][reached]
        side = Side(waiting, _call(row) + _listed(row), row["stack"])
        if last.get("end"):
            return Divergence(side, Side(agreeing, "the end of the script", []))
        return Divergence(side, Side(agreeing, _call(last) + _listed(last), last["stack"]))
    return None


def unmatched(logs: dict[int, list[dict]]) -> Divergence | None:
    """A message that is waited for and was not sent, else one that was sent and is not received.
    What its other rank does instead is a message between the two of another tag, or what it called
    last.
    """
    left: dict[str, list[tuple[int, int, dict]]] = {"recv": [], "send": []}
    for (source, target, _), (sent, received) in _messages(logs).items():
        left["send"] += [(source, target, row) for row in sent[len(received) :]]
        left["recv"] += [(target, source, row) for row in received[len(sent) :]]
    for way, rows in left.items():
        for rank, peer, row in rows:
            others = left["send" if way == "recv" else "recv"]
            between = [one for at, to, one in others if (at, to) == (peer, rank)]
            if between:
                return Divergence(_message(rank, row), _message(peer, between[0]))
            last = logs.get(peer, [])[-1:]
            if not last:
                continue
            if last[0].get("end"):
                return Divergence(_message(rank, row), Side([peer], "the end of the script", []))
            words = f"{_call(last[0])}, the last call,"
            return Divergence(_message(rank, row), Side([peer], words, last[0]["stack"]))
    return None


def _undelivered(logs: dict[int, list[dict]]) -> str:
    """Where a rank waits although each of its messages is both sent and received: gloo does not
    deliver them, and the script is not to blame. Empty if there is no such rank."""
    left: set[int] = set()  # ranks with a message of one end
    for (source, target, _), (sent, received) in (found := _messages(logs)).items():
        if len(sent) != len(received):
            left |= {target if len(received) > len(sent) else source}
    there = {rank for source, target, _ in found for rank in (source, target)}
    for rank in sorted(there - left):
        last = logs[rank][-1] if logs.get(rank) else {}
        if last.get("message") and last["stack"]:
            words = "waits for a message that was sent, or to send one that is asked for"
            return f"{_place(last['stack'][0])}: rank {rank} {words}: gloo does not deliver it"
    return ""


def _message(rank: int, row: dict) -> Side:
    return _side({rank: row}, [rank])


def _messages(logs: dict[int, list[dict]]) -> dict[tuple, tuple[list[dict], list[dict]]]:
    """What is sent and what is received, in order, by rank that sends, rank that receives, tag."""
    found: dict[tuple, tuple[list[dict], list[dict]]] = {}
    rows = [(rank, row) for rank, log in logs.items() for row in log if row.get("message")]
    if any(row["message"]["peer"] is None for _, row in rows):
        return {}  # which one a rank receives that takes any is not known
    for rank, row in rows:
        peer, sends = row["message"]["peer"], row["call"] == "send"
        ends = (rank, peer) if sends else (peer, rank)
        found.setdefault((*ends, row["message"]["tag"]), ([], []))[not sends].append(row)
    return found


def _same(row: dict, other: dict) -> bool:
    return all(row.get(key) == other.get(key) for key in ("end", "call", "about", "group"))


def _by_group(logs: dict[int, list[dict]]) -> dict[tuple, dict[int, list[dict]]]:
    """For each group, the collectives that each of its ranks has called."""
    found: dict[tuple, dict[int, list[dict]]] = {}
    for rank, rows in _together(logs).items():
        for row in rows:
            if row.get("end") or row.get("message"):
                continue
            name, ranks = row["group"]
            calls = found.setdefault((name, *ranks), {one: [] for one in ranks if one in logs})
            calls.setdefault(rank, []).append(row)
    return found


def calls(folder: pathlib.Path) -> list[dict]:
    """What a rank has called, when it is done."""
    file = folder / "calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Ranks:
    """Waits for the ranks of a run."""

    found, reason = None, ""
    _pause = 0.02  # seconds between two looks

    def __init__(self, folder: pathlib.Path, ranks: list[int]):
        self.folder, self.ranks = folder, ranks

    def all_done(self) -> bool:
        return all((self.folder / str(rank) / "outcome.json").exists() for rank in self.ranks)

    def _one_fails(self) -> bool:
        """Then the others would wait for it."""
        files = (self.folder / str(rank) / "outcome.json" for rank in self.ranks)
        return any("error" in json.loads(file.read_text()) for file in files if file.exists())

    def wait(self, run: process.Forked, timeout: float, news=lambda: None) -> int:
        """Until all are done, cannot be, or their process ends; its code, else 0. `news`: called
        meanwhile."""
        end = time.monotonic() + timeout
        while not self._is_over(run):
            if time.monotonic() > end:
                self._is_late()
                raise TimeoutError
            time.sleep(self._pause)
            news()
        return run.poll() or 0

    def _is_over(self, run: process.Forked) -> bool:
        return run.poll() is not None or self.all_done() or self._one_fails()

    def _is_late(self) -> None:
        pass


class Watch(Ranks):
    """Looks at ranks that run together, from outside."""

    _pause = 0.1

    def __init__(self, folder: pathlib.Path, ranks: list[int]):
        super().__init__(folder, ranks)
        self.logs: dict[int, list[dict]] = {rank: [] for rank in ranks}
        self._read = dict.fromkeys(ranks, 0)
        self._moved = time.monotonic()
        self._used: dict[int, float] = {}  # seconds of a processor, when one was last seen busy
        self.found: Divergence | None = None
        self.reason = ""  # why they wait, where that is no divergence

    def _is_over(self, run: process.Forked) -> bool:
        # They may have ended since the last look.
        if self.all_done() or run.poll() is not None:
            self._new_rows()
            self.found = parted(self.logs)
            return True
        self.found = self.look()
        if self.found is not None:
            self._settle(run)
        return bool(self.found or self.reason)

    def _is_late(self) -> None:
        """The ranks have ended or their time is over."""
        self._new_rows()
        self.found = parted(self.logs) or self.stuck()

    def _settle(self, run: process.Forked) -> None:
        """Gives slower ranks time to come to the same call: who is named does not depend on it."""
        end = time.monotonic() + _QUIET
        while not self.found.complete and time.monotonic() < end and run.poll() is None:
            time.sleep(0.1)
            self._new_rows()
            self.found = parted(self.logs) or self.found

    def look(self) -> Divergence | None:
        """What the calls so far tell; ranks that wait for each other are silent."""
        if self._new_rows():
            self._moved = time.monotonic()
            return parted(self.logs)
        if self._busy():
            self._moved = time.monotonic()
        if time.monotonic() - self._moved < _QUIET:
            return None
        self._moved = time.monotonic()
        return self.stuck()

    def stuck(self) -> Divergence | None:
        """Where every rank waits in torch, or has ended: what they wait for."""
        ended = [rank for rank, rows in self.logs.items() if rows and rows[-1].get("end")]
        running = [rank for rank in self.ranks if rank not in ended]
        if not running or not all(map(self._waits, running)):
            return None
        logs = _together(self.logs)
        if undelivered := _undelivered({rank: logs[rank] for rank in running}):
            self.reason = undelivered
            return None
        found = left_waiting(logs) or unmatched(logs)
        rows = logs[running[0]]
        if found is None and rows and rows[-1].get("stack"):
            where = _place(rows[-1]["stack"][0])
            self.reason = f"{where}: rank {running[0]} waits for what no other rank does"
        return found

    def _new_rows(self) -> bool:
        new = False
        for rank in self.ranks:
            file = self.folder / str(rank) / "calls.jsonl"
            if not file.exists():
                continue
            with open(file, "rb") as log:
                log.seek(self._read[rank])
                lines = log.read().split(b"\n")
            whole, rest = lines[:-1], lines[-1]  # the last line may still be being written
            self._read[rank] += sum(len(line) + 1 for line in whole)
            self.logs[rank] += [json.loads(line) for line in whole]
            new |= bool(whole)
        return new

    def _busy(self) -> bool:
        """Whether a rank has computed since the last time; where nobody can know, it has."""
        now = {rank: _seconds_used(self._pid(rank)) for rank in self.ranks}
        if None in now.values():
            return True
        busy = any(used - self._used.get(rank, 0) > 0.05 for rank, used in now.items())
        if busy:
            self._used = now
        return busy

    def _pid(self, rank: int) -> int | None:
        file = self.folder / str(rank) / "pid"
        return int(file.read_text()) if file.exists() else None

    def _waits(self, rank: int) -> bool:
        """Whether the rank stands inside of torch, and not in what the script itself waits for."""
        stacks, pid = self.folder / str(rank) / "stacks.txt", self._pid(rank)
        if pid is None or not stacks.exists():
            return False
        before = stacks.stat().st_size
        try:
            os.kill(pid, signal.SIGUSR1)
        except ProcessLookupError:
            return False
        end = time.monotonic() + 2
        while time.monotonic() < end and stacks.stat().st_size == before:
            time.sleep(0.02)
        time.sleep(0.05)
        frame = re.search(r'File "([^"]+)"', stacks.read_text()[before:])
        return frame is not None and (
            f"{os.sep}torch{os.sep}" in frame[1] or frame[1].startswith(PACKAGE)
        )


def _seconds_used(pid: int | None) -> float | None:
    """Of a processor, by a process; None where the system does not say."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] == "D":  # waiting for a disk
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def state(trace: pathlib.Path, found: Divergence) -> None:
    """Writes a divergence into a trace, as its first operation."""
    document = json.loads(trace.read_text(encoding="utf-8"))
    loc = None
    for frame in reversed(found.call.stack):
        loc = location(document, frame, loc)
    document["ops"].insert(0, found.statement(loc))
    document["op_count"] += 1
    trace.write_text(text(document), encoding="utf-8")


def location(document: dict, frame: dict, caller: int | None) -> int:
    names = [one["path"] if isinstance(one, dict) else one for one in document["files"]]
    if frame["file"] not in names:
        names.append(frame["file"])
        document["files"].append(file_entry(frame["file"], frame["path"]))
    where = {"file": names.index(frame["file"]), "line": frame["line"]}
    if frame["col"] is not None and frame["end"] is not None:
        where |= {"col": frame["col"], "end": frame["end"]}
    where |= {"func": frame["func"]} | ({} if caller is None else {"caller": caller})
    document["locs"].append(where)
    return len(document["locs"]) - 1
