"""Records one step of a training script, which runs as it is: no GPU, no other processes, no change
to it.

spmd-trace record train.py --batch-size 4
spmd-trace record --nproc-per-node 8 --nnodes 2 -o step.spmd.json train.py
spmd-trace record --from serve.py:40 --until serve.py:52 serve.py

Exit codes: 3 if nothing could be recorded, 4 if a part could not be.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import cuts, divergence, gradcheck, leftovers, ownnumbers, ownops, process, shifts, stages
from .ranks import compared, coordinate, line_of
from .versions import too_old

FAILED = 3
IN_PART = 4  # recorded, but for some operations of which the trace says nothing
MOST_RANKS = 16  # that run together on this machine
_CHECKING = 30.0  # seconds for the gradient check of one run
_LEFT = "by peer"  # what a rank says that another one has left
_NEWS = 10  # seconds between two words about what goes on
_SPEED = 5e10  # operations on numbers that a processor does in a second
_LONG = 120  # seconds
_REMEDY = ": --data real gives them values"  # how a script's want of values ends


def add_options(parser: argparse.ArgumentParser) -> None:
    add_script_options(parser)
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, metavar="FILE", default="step.spmd.json"
    )


def add_script_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--world", type=int, metavar="N", help="ranks, all on one host (8)")
    parser.add_argument("--nproc-per-node", type=int, metavar="K", help="ranks on each host")
    parser.add_argument("--nnodes", type=int, metavar="M", help="hosts (1)")
    parser.add_argument(
        "--rank",
        type=int,
        metavar="N",
        help="the rank that is recorded (0; where ranks send messages, one that takes part in all)",
    )
    parser.add_argument(
        "--step", type=int, metavar="N", help="the step, from 1 (2); with --from, which time (1)"
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="FILE:LINE",
        help="the part to record begins when this line is reached, whether or not it trains",
    )
    parser.add_argument(
        "--until", metavar="FILE:LINE", help="and ends before this one (the end of the script)"
    )
    parser.add_argument(
        "--ranks",
        choices=["auto", "one"],
        default="auto",
        help="auto: all ranks run up to the step, where it is not known what differs between them",
    )
    parser.add_argument(
        "--confirm",
        action="store_true",
        help="run all ranks with changed parameters, and compare gradients with what the loss does",
    )
    parser.add_argument(
        "--data",
        choices=["auto", "fake", "real"],
        default="auto",
        help="fake: large tensors have only shapes; auto: where values need too much",
    )
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="AXIS=SIZE: ARGS",
        help="also record the step with these arguments and this size: what the axis cuts",
    )
    parser.add_argument(
        "--timeout", type=int, default=600, metavar="S", help="seconds to wait (600)"
    )
    parser.add_argument("-m", "--module", action="store_true", help="the script is a module's name")
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run(parser: argparse.ArgumentParser, options) -> int:
    done = record(parser, options, options.output)
    if done is None:
        return FAILED
    if "parted" in done:
        say(f"rank-divergence: {done['parted']}")
    print(f"{options.output}: {done['ops']} operations")
    return IN_PART if done["refused"] else 0


def _settings(parser: argparse.ArgumentParser, options) -> dict:
    if options.world is not None and (options.nproc_per_node or options.nnodes):
        parser.error("--world stands alone, or --nproc-per-node with --nnodes")
    per_node = options.world if options.world is not None else options.nproc_per_node or 8
    nodes = options.nnodes or 1
    if options.until and not options.start:
        parser.error("--until stands with --from")
    locations = [place for place in (options.start, options.until) if place is not None]
    if wrong := [one for one in locations if not re.fullmatch(r".+:[1-9]\d*", one)]:
        parser.error(f"{wrong[0]}: a place is FILE:LINE")
    if options.step is None:
        options.step = 1 if options.start else 2
    if per_node < 1 or nodes < 1 or options.step < 1 or options.timeout < 1:
        parser.error("ranks, hosts, steps and seconds are counted from 1")
    rank = options.rank or 0
    if not 0 <= rank < per_node * nodes:
        parser.error(f"--rank {rank}: there are {per_node * nodes} ranks")
    names = ("script", "arguments", "step", "module", "start", "until")
    words = {name: getattr(options, name) for name in names}
    return words | {"rank": rank, "per_node": per_node, "nodes": nodes}


def record(parser: argparse.ArgumentParser, options, output: pathlib.Path) -> dict | None:
    """Records into a file; the number of operations (`ops`), what was `refused` and where ranks
    `parted`, or None after a word about what failed.
    """
    settings = _settings(parser, options)
    if not options.module and not os.path.isfile(options.script):
        return _failed(f"{options.script}: no such file")
    if not output.resolve().parent.is_dir():
        return _failed(f"{output}: no such folder")
    if importlib.util.find_spec("torch") is None:
        return _failed("torch is not installed: pip install 'spmd-trace[torch]'")
    if reason := too_old("torch"):
        return _failed(reason)
    with tempfile.TemporaryDirectory() as folder:
        runs = _Runs(pathlib.Path(folder), settings, options.timeout)
        outcome = _alone(runs, options)
        if outcome.get("unanswered") and options.ranks == "auto":
            outcome = _in_company(runs, outcome)
        elif "error" not in outcome and (options.ranks == "auto" or outcome["messages"]):
            outcome = _by_all_ranks(runs, outcome, options)
        if "error" not in outcome and "parted" not in outcome:
            for words in options.vary:
                outcome = _varied(runs, outcome, words, parser)
        if options.confirm and "error" not in outcome and "parted" not in outcome:
            _confirm(runs, outcome, options)
        if kept := leftovers.tidied(sorted(pathlib.Path(folder).glob("*/effects.jsonl"))):
            say(kept)
        if "error" in outcome:
            return _failed(outcome["error"])
        if outcome["contradicted"]:
            names = ", ".join(outcome["contradicted"])
            say(f"copies of parameters differ before the first step: {names}")
        # Copied beside its place and then renamed: nothing half-written is ever there.
        partial = output.with_name(output.name + ".partial")
        shutil.copyfile(outcome["trace"], partial)
        partial.replace(output)
        _say_refused(outcome["refused"])
        return outcome


def _alone(runs: "_Runs", options) -> dict:
    """The step as the recorded rank runs it, first without the values of large tensors: what these
    would cost is known before they are made.
    """
    outcome = runs.alone("alone")
    cost = outcome.get("cost", {})
    dear = _too_dear(cost, 1)
    if options.data == "real" and dear:
        return {"error": f"--data real: {dear}"}
    wants = outcome.get("wants_values") and options.data == "auto" and not dear
    if options.data == "real" or wants:
        if "error" in outcome and options.data == "auto":
            say(f"{outcome['error'].removesuffix(_REMEDY)}: so all tensors have values")
        runs.data = "real"
        return runs.alone("real") if "error" in outcome or cost.get("large") else outcome
    if dear and "error" in outcome and outcome.get("wants_values"):
        outcome["error"] = f"{outcome['error'].removesuffix(_REMEDY)}, and with values {dear}"
    return outcome


def _varied(runs: "_Runs", outcome: dict, words: str, parser) -> dict:
    """The step with the cuts that its recording at another size of an axis shows."""
    try:
        vary = cuts.Vary.read(words)
        ranks = vary.ranks(outcome["axes"], runs.settings["per_node"], runs.settings["nodes"])
    except ValueError as error:
        parser.error(str(error))
    arguments = runs.settings["arguments"] if vary.arguments is None else vary.arguments
    more = ranks | {"arguments": arguments}
    other = runs.alone(f"{vary.axis}={vary.size}", rank=0, **more)
    if "error" in other:
        return {"error": f"with {vary.axis}={vary.size}: {other['error']}"}
    found, missing = cuts.state(outcome["trace"], other["trace"], vary.axis)
    say(
        f"{vary.axis}={vary.size}: {found} values are cut along {vary.axis}"
        + (f"; {missing}" if missing else "")
    )
    return outcome


def _in_company(runs: "_Runs", outcome: dict) -> dict:
    """The step of a script that fails where other ranks do not send it what it asks for: all of
    them run.
    """
    found, reason = runs.together()
    if runs.parted is not None or not found:
        return outcome | {
            "error": f"{outcome['error']} (it has asked another rank for an object; {reason})"
        }
    if found[runs.rank]["messages"]:
        return _staged(runs, found, "")
    observed = runs.observed(found, found[runs.rank])
    again, reason = runs.together("observed", observed=observed)
    return again[runs.rank] if again else {"error": reason}


def _staged(runs: "_Runs", found: dict[int, dict], place: str) -> dict:
    """The step of ranks that run programs of their own: of the stages of a pipeline, as one
    program; else that of one rank.
    """
    outcome = found[runs.rank]
    logs = {rank: run["messages"] for rank, run in found.items()}
    members = stages.connected(runs.rank, logs)
    try:
        if not shifts.matched(logs):
            raise stages.Apart("not all that ranks send in this step is received in it")
        # Of the groups of another stage a rank need not know.
        axes = max((found[rank]["axes"] for rank in members), key=len)
        line = stages.Line(axes, members)
        kept = [axis for axis in axes if axis[0] not in line.along]
        seen = {rank: runs.observed(found, found[rank] | {"axes": kept}, rank) for rank in members}
        own = {str(rank): observed | {"axes": axes} for rank, observed in seen.items()}
        again, reason = runs.together("observed", own=own)
        if not again:
            return {"error": reason}
        _mark_own({rank: again[rank] for rank in members}, found, kept)
        output = runs.folder / "joined.spmd.json"
        traces = {rank: again[rank]["trace"] for rank in members}
        ops = stages.join(traces, line, {rank: again[rank]["values"] for rank in members}, output)
    except stages.Apart as error:
        say(f"{place}{error}: what is recorded is the program of rank {runs.rank}")
        observed = runs.observed(found, outcome, apart=True)
        again, reason = runs.together("alone observed", observed=observed)
        return again[runs.rank] if again else {"error": reason}
    ranks = ", ".join(map(str, members))
    say(f"{place}{len(members)} stages of a pipeline, those of ranks {ranks}, are one program")
    runs.observed(found, outcome, apart=True)  # for a check of gradients
    refused = [one for rank in members for one in again[rank]["refused"]]
    contradicted = [one for rank in members for one in again[rank]["contradicted"]]
    return outcome | {"trace": output, "ops": ops, "refused": refused, "contradicted": contradicted}


def _mark_own(outcome: dict[int, dict], found: dict[int, dict], axes: list) -> None:
    """Notes in the traces of ranks what others on the axes do not run, and run with other
    numbers."""
    steps = ownops.Steps({rank: run["trace"] for rank, run in found.items()})
    for rank, run in outcome.items():
        ownops.mark(run["trace"], rank, steps, axes)  # first: by operations as they were recorded
        ownnumbers.state(run["trace"], rank, steps, axes)


def _too_dear(cost: dict, ranks: int) -> str:
    """Why values are too much for this machine; empty if they are not."""
    gigabytes, there = cost.get("bytes", 0) * ranks / 1e9, _memory() / 1e9
    of = f"{ranks} ranks need" if ranks > 1 else "the step needs"
    if gigabytes > there / 2:
        return f"{of} about {gigabytes:.0f} GB of the {there:.0f} GB that are free"
    seconds = cost.get("flops", 0) * ranks / _SPEED
    return f"{of} about {seconds / 60:.0f} minutes" if seconds > _LONG else ""


def _memory() -> int:
    """Bytes that are free."""
    try:
        rows = pathlib.Path("/proc/meminfo").read_text().splitlines()
        (row,) = [row for row in rows if row.startswith("MemAvailable:")]
        return int(row.split()[1]) * 1024
    except (OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _by_all_ranks(runs: "_Runs", outcome: dict, options) -> dict:
    """The step once more, with what other ranks say of it."""
    if options.ranks != "auto":
        found, reason = {}, "--ranks one"
    elif outcome["messages"] or not (reason := _few_values(runs, outcome, options)):
        found, reason = runs.together()
    else:
        found, more = runs.beside(outcome)
        say(f"{reason}, so large tensors have shapes and no values") if not more else None
        reason = more
    if runs.parted is not None:
        divergence.state(outcome["trace"], runs.parted)
        return outcome | {"ops": outcome["ops"] + 1, "parted": runs.parted.sentence()}
    if not outcome["messages"]:
        if reason:
            _note(reason)
        observed = runs.observed(found, outcome) if found else {"kinds": {}}
        outcome = runs.alone("observed", observed=observed) if observed["kinds"] else outcome
        if found and "error" not in outcome:
            _mark_own({runs.rank: outcome}, found, outcome["axes"])
        return outcome
    place = outcome["messages"][0]["place"]
    if not found:
        return {"error": f"{place}what other ranks send here is not known: {reason}"}
    logs = {rank: run["messages"] for rank, run in found.items()}
    plans = shifts.rounds(logs, outcome["axes"])
    if not plans:
        return _staged(runs, found, place)
    if options.rank is None:
        runs.rank = max(plans, key=lambda rank: (found[rank]["ops"], -rank))
    elif options.rank not in plans:
        others = ", ".join(map(str, plans))
        words = f"rank {options.rank} does not take part in all messages: record one of {others}"
        return {"error": place + words}
    observed = runs.observed(found, found[runs.rank])
    return runs.alone("observed", observed=observed | {"plan": plans[runs.rank]})


def _confirm(runs: "_Runs", outcome: dict, options) -> None:
    """States in the trace what the loss says of gradients; a word where it says nothing."""
    if reason := runs.too_many() or _few_values(runs, outcome, options):
        say(f"gradients are not checked: {reason}")
        return
    # Before a momentum is there, and before copies of one parameter can differ.
    first = {"step": 1} if outcome["by_hand"] or runs.apart else {}
    rows = runs.checked(runs.kinds, outcome["axes"], **first)
    if "error" in rows:
        say(f"gradients are not checked: {rows['error']}")
        return
    if os.environ.get("SPMD_TRACE_DEBUG"):
        say("\n".join(map(str, rows["rows"])))
    found = gradcheck.relative(rows["rows"], runs.world)
    if any(ratio != 1 for ratio in found.values()):
        alone = runs.checked({}, [], world=1, **first)
        if "error" in alone and outcome["by_hand"]:
            say(f"gradients are not checked: on one rank, {alone['error']}")
            return
        if "error" not in alone:
            found = gradcheck.without(found, gradcheck.relative(alone["rows"], 1))
    if elsewhere := gradcheck.state(outcome["trace"], found):
        say(f"wrong-gradient of parameters that other ranks have: {', '.join(elsewhere)}")
    say(f"gradients of {len(found)} of {len(rows['rows'])} parameters could be checked")


def _few_values(runs: "_Runs", outcome: dict, options) -> str:
    """Why ranks that run with all their values are too much; empty if they are not."""
    if options.data == "fake" and outcome["cost"]["large"]:
        return "--data fake"
    return _too_dear(outcome["cost"], min(runs.world, MOST_RANKS)) if runs.data == "fake" else ""


class _Runs:
    """Runs of one script, each in processes of its own."""

    def __init__(self, folder: pathlib.Path, settings: dict, timeout: int):
        self.folder, self.settings, self.timeout = folder, settings, timeout
        self.rank = settings["rank"]
        self.kinds: dict[str, dict[str, str]] = {}  # of parameters, where ranks were compared
        self.apart = False  # whether ranks run programs of their own
        self.world = settings["per_node"] * settings["nodes"]
        self.data = "fake"  # whether large tensors have values where ranks run for themselves
        self.seconds = 0.0  # that the last run of one rank took
        self.parted: divergence.Divergence | None = None  # where ranks call other collectives

    def too_many(self) -> str:
        """Why all ranks cannot run together; empty if they can."""
        return f"more than {MOST_RANKS} ranks are not run" if self.world > MOST_RANKS else ""

    def alone(self, name: str, rank: int | None = None, **more) -> dict:
        """A run of the recorded rank, or another one, whose collectives move no data."""
        start = time.monotonic()
        rank = self.rank if rank is None else rank
        outcome = self._run(name, [rank], **more)[rank]
        self.seconds = time.monotonic() - start
        return outcome

    def _run(
        self, name: str, ranks: list[int], timeout=None, together=False, **more
    ) -> dict[int, dict]:
        """What each rank says: its trace and what belongs to it, or an error.

        `together`: their collectives move data; `own`: what is `observed` of some ranks alone.
        """
        folder = self.folder / name
        folder.mkdir()
        settings = self.settings | {"folder": str(folder), "ranks": ranks}
        settings |= {"observed": {}, "own": {}}
        settings |= {"together": together, "data": "real" if together else self.data} | more
        (folder / "settings.json").write_text(json.dumps(settings))
        # What the script prints is not what the command prints; said once it is enough.
        target = sys.stderr if name == "alone" else subprocess.DEVNULL
        watch = divergence.Watch(folder, ranks) if together else None
        if "check" in more:
            watch = divergence.Ranks(folder, ranks)
        limit = timeout or self.timeout
        error = _run_child(folder, self.rank, settings["script"], limit, target, watch)
        if watch is not None and not watch.all_done():
            self.parted = watch.found
            error = watch.reason or error
        lost = error or f"{settings['script']}: the process of the script left no trace"
        found = {}
        for rank in ranks:
            written = folder / str(rank) / "outcome.json"
            there = written.exists()
            outcome = json.loads(written.read_text()) if there else {"error": lost, "lost": True}
            found[rank] = outcome | {"trace": folder / str(rank) / "step.spmd.json"}
        return found

    def together(self, name: str = "together", **more) -> tuple[dict[int, dict], str]:
        """What every rank says, where all run up to the step with collectives that move data; else
        why not."""
        if reason := self.too_many():
            return {}, reason
        # Ranks that wait for each other wait forever.
        timeout = min(self.timeout, 60 + self.world * self.seconds)
        found = self._run(name, list(range(self.world)), timeout, together=True, **more)
        # A rank that says why it failed comes before those that it left without an outcome.
        failed = [(rank, run) for rank, run in found.items() if "error" in run]
        lost = {rank: run.get("lost", False) or _LEFT in run["error"] for rank, run in failed}
        for rank, run in sorted(failed, key=lambda one: lost[one[0]]):
            return {}, f"rank {rank} of {self.world} that run together: {run['error']}"
        return found, ""

    def checked(self, kinds: dict, axes: list, world: int | None = None, **more) -> dict:
        """What the gradient check found on all ranks, or on a single one, or why it found nothing
        (`error`)."""
        observed = {"kinds": kinds, "axes": axes, "apart": self.apart and world is None}
        more |= {"check": _CHECKING, "observed": observed}
        ranks = self.world
        if world is not None:
            ranks = world
            more |= {"per_node": world, "nodes": 1, "rank": 0}
        limit = min(self.timeout, 2 * _CHECKING + 60 + ranks * self.seconds)
        more |= {"together": ranks > 1, "data": "real"}
        found = self._run(f"checked on {ranks}", list(range(ranks)), limit, **more)
        failed = [run for run in found.values() if "error" in run]
        return sorted(failed, key=lambda run: run.get("lost", False))[0] if failed else found[0]

    def beside(self, outcome: dict) -> tuple[dict[int, dict], str]:
        """What the recorded rank and one beside it along each axis say, whose collectives move no
        data; else why nothing is known.
        """
        others = []
        for _, size, stride in outcome["axes"]:
            if size > 1:
                line = line_of(self.rank, size, stride)
                others.append(line[(coordinate(self.rank, size, stride) + 1) % size])
        found = self._run("beside", others)
        for rank, run in found.items():
            if "error" in run:
                return {}, f"rank {rank}, beside the one that is recorded: {run['error']}"
        folders = {rank: self.folder / "beside" / str(rank) for rank in others}
        folders[self.rank] = outcome["trace"].parent
        logs = {rank: divergence.calls(folder) for rank, folder in folders.items()}
        self.parted = divergence.parted(logs) or divergence.left_waiting(logs)
        return found | {self.rank: outcome}, ""

    def observed(self, found: dict[int, dict], outcome: dict, rank=None, apart=False) -> dict:
        """What is equal on the ranks that lie along the axes of one, or of the recorded one;
        `apart`: they run programs of their own.
        """
        values = {rank: run["values"] for rank, run in found.items()}
        exchanged = [] if apart else outcome["exchanged"]
        rank = self.rank if rank is None else rank
        result = compared(rank, values, outcome["axes"], outcome["summed"], apart, exchanged)
        self.kinds, self.apart = result["kinds"], apart
        return result


def _say_refused(refused: list[dict]) -> None:
    """Each thing that was not recorded, once for each place."""
    lines = dict.fromkeys(f"  {one['place']}{one['what']}; {one['remedy']}" for one in refused)
    if lines:
        say("\n".join(["not recorded, and what comes of it is unknown:", *lines]))


def _note(reason: str) -> None:
    say(f"what differs between ranks stays unknown: {reason}")


def _failed(reason: str) -> None:
    say(reason)


def say(text: str) -> None:
    print(f"spmd-trace: {text}", file=sys.stderr)


def _run_child(
    folder: pathlib.Path, rank: int, script: str, timeout: int, target, watch=None
) -> str | None:
    """Runs the script in processes of its own; what kept it from an outcome.

    `watch`: looks at ranks that run together, which end when all are done or cannot be.
    """
    variables = {}
    if sys.platform == "linux":  # ranks that run together are on one machine
        variables["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    stderr = None if target is sys.stderr else target
    child = process.started(
        "spmd_trace.torch.script.child",
        [str(folder / "settings.json")],
        target,
        stderr,
        **variables,
    )
    try:
        code = _wait(child, folder, timeout) if watch is None else watch.wait(child, timeout)
    except subprocess.TimeoutExpired:
        return (
            f"{_hanging_at(child, folder / str(rank))}the script is not done after {timeout:.0f} s"
        )
    finally:
        process.end(child)
    if code == 0:
        return None
    ended = f"signal {-code}" if code < 0 else f"code {code}"
    return f"{script}: the process of the script ended with {ended}, and left no trace"


def _wait(child: subprocess.Popen, folder: pathlib.Path, timeout: float) -> int:
    """Until the process ends, telling a person who waits how far it is; its code."""
    start = time.monotonic()
    while (left := start + timeout - time.monotonic()) > _NEWS:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(_NEWS)
        counts = [int(one.read_text()) for one in folder.glob("*/progress")]
        if counts and sys.stderr.isatty():
            say(f"{time.monotonic() - start:.0f} s: {sum(counts)} operations")
    return child.wait(max(left, 0))


def _hanging_at(child: subprocess.Popen, folder: pathlib.Path) -> str:
    """Where the script is, innermost first."""
    from .locations import SITE, is_ours

    named = folder / "pid"  # not there where torch was still being imported
    if not named.exists():
        return ""
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(named.read_text()), signal.SIGUSR1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(2)
    standard = os.path.dirname(os.__file__) + os.sep
    stacks = folder / "stacks.txt"
    text = stacks.read_text() if stacks.exists() else ""
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', text):
        if not is_ours(file) and not file.startswith((*SITE, standard, "<")):
            return f"{os.path.basename(file)}:{line}: "
    return ""
