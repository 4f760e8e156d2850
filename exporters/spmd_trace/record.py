"""Records one step of a training script, which runs as it is: no GPU, no other processes, no change
to it.

spmd-trace record train.py --batch-size 4
spmd-trace record --nproc-per-node 8 --nnodes 2 -o step.spmd.json train.py
spmd-trace record --from serve.py:40 --until serve.py:52 serve.py

Of a JAX script the jitted functions with a shard_map in them are recorded that it calls: one into
the file, several into files beside it, such as step.train_step.spmd.json.

Exit codes: 3 if nothing could be recorded, 4 if a part could not be.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

from . import cuts, gradcheck, jaxscript, leftovers, ownnumbers, ownops, shifts, stages
from .ranks import compared, coordinate, line_of
from .recording import FAILED, IN_PART, keep, missing_file, say, unfit
from .runs import divergence, later, process

MOST_RANKS = 16  # that run together on this machine
_NUDGE = 1e-6  # part by which parameters change, to see how much of a difference roundings make
_CHECKING = 30.0  # seconds for the gradient check of one run
_LEFT = "by peer"  # what a rank says that another one has left
_NEWS = 10  # seconds between two words about what goes on
_SPEED = 5e10  # operations on numbers that a processor does in a second
_LONG = 120  # seconds
_SHORT = 20  # seconds up to the recorded step, for which more steps are compared with one rank
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
        help="run the first steps on all ranks and on one, and compare; where that does not say "
        "all, compare gradients with what the loss does",
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
    if not options.module and jaxscript.is_one(options.script):
        return jaxscript.record(options, options.output)
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
    words |= {"rank": rank, "per_node": per_node, "nodes": nodes}
    return words | {"inference": False}


def record(parser: argparse.ArgumentParser, options, output: pathlib.Path) -> dict | None:
    """Records into a file; the number of operations (`ops`), what was `refused` and where ranks
    `parted`, or None after a word about what failed.
    """
    settings = _settings(parser, options)
    if reason := missing_file(options, output):
        return _failed(reason)
    if reason := unfit("torch"):
        return _failed(reason)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(_Runs(pathlib.Path(folder), settings, options.timeout)) as runs,
    ):
        outcome = _alone(runs, options)
        if outcome.get("unanswered") and options.ranks == "auto":
            outcome = _in_company(runs, outcome)
        elif "error" not in outcome and (options.ranks == "auto" or outcome["messages"]):
            outcome = _by_all_ranks(runs, outcome, options)
        if "error" not in outcome and "parted" not in outcome:
            for words in options.vary:
                outcome = _varied(runs, outcome, words, parser)
            if not options.vary and options.ranks == "auto" and "stages" not in outcome:
                _vary_all_ranks(runs, outcome)
        if options.confirm and "error" not in outcome and "parted" not in outcome:
            _confirm(runs, outcome, options)
        if kept := leftovers.tidied(sorted(pathlib.Path(folder).glob("*/effects.jsonl"))):
            say(kept)
        if "error" in outcome:
            return _failed(outcome["error"])
        if outcome["contradicted"]:
            names = ", ".join(outcome["contradicted"])
            say(f"copies of parameters differ before the first step: {names}")
        keep(outcome["trace"], output)
        _say_refused(outcome["refused"])
        return outcome


def _alone(runs: "_Runs", options) -> dict:
    """The step as the recorded rank runs it, first without the values of large tensors: what these
    would cost is known before they are made.
    """
    outcome = runs.alone("alone", again=options.ranks == "auto")
    if (calls := outcome.get("calls")) and not runs.settings["start"]:
        number = min(options.step, calls)
        say(f"{options.script} does not train: call {number} of {calls} of a model is recorded")
        runs.settings |= {"inference": True, "step": number}
        outcome = runs.alone("inference", again=options.ranks == "auto")
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
    found = _at_another_size(runs, outcome, vary, ranks)
    if "error" in found:
        return found
    say(found["said"])
    return outcome


def _vary_all_ranks(runs: "_Runs", outcome: dict) -> None:
    """States the cuts along an axis of all ranks that another number of them shows, and the numbers
    that depend on it, where ranks have parameters of their own.
    """
    axes = [(name, size) for name, size, _ in outcome["axes"] if size > 1]
    if len(axes) != 1 or runs.seconds > _SHORT or "error" in outcome:
        return
    ((axis, size),) = axes
    if axis not in cuts.of_own_parameters(outcome["trace"]):
        return
    # What is divided by so many divides by half of them; a single rank may run other code.
    there = size // 2 if size % 2 == 0 and size > 2 else 2 * size
    vary = cuts.Vary(axis, there, None)
    ranks = vary.ranks(outcome["axes"], runs.settings["per_node"], runs.settings["nodes"])
    found = _at_another_size(runs, outcome, vary, ranks, sure=True)
    _debug(found.get("error") or found["said"])


def _at_another_size(
    runs: "_Runs", outcome: dict, vary: cuts.Vary, ranks: dict, sure: bool = False
) -> dict:
    """States what the step at another size of an axis shows to be cut, and the numbers that depend
    on it; what is `said` of it, or an `error`. `ranks`: of the job then.
    """
    arguments = runs.settings["arguments"] if vary.arguments is None else vary.arguments
    name = f"{vary.axis}={vary.size}"
    other = runs.alone(name, rank=0, **ranks, arguments=arguments)
    if "error" in other:
        return {"error": f"with {name}: {other['error']}"}
    found, missing = cuts.state(outcome["trace"], other["trace"], vary.axis, sure)
    numbers = cuts.state_numbers(outcome["trace"], other["trace"], vary.axis)
    words = [f"{name}: {found} values are cut along {vary.axis}"]
    words += [f"{numbers} numbers depend on its size"] if numbers else []
    return {"said": "; ".join([*words, missing] if missing else words)}


def _in_company(runs: "_Runs", outcome: dict) -> dict:
    """The step of a script that fails where other ranks do not send it what it asks for: all of
    them run.
    """
    found, reason = runs.together(again=True)
    if runs.parted is not None or not found:
        return outcome | {
            "error": f"{outcome['error']} (it has asked another rank for something; {reason})"
        }
    if found[runs.rank]["messages"]:
        return _staged(runs, found, "")
    observed = runs.observed(found, found[runs.rank])
    again, reason = runs.together_again(observed=observed)
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
        again, reason = runs.together_again(own=own)
        if not again:
            return {"error": reason}
        _mark_own({rank: again[rank] for rank in members}, found, kept)
        output = runs.folder / "joined.spmd.json"
        traces = {rank: again[rank]["trace"] for rank in members}
        ops = stages.join(traces, line, {rank: again[rank]["values"] for rank in members}, output)
    except stages.Apart as error:
        say(f"{place}{error}: what is recorded is the program of rank {runs.rank}")
        observed = runs.observed(found, outcome, apart=True)
        again, reason = runs.together_again("alone observed", observed=observed)
        return again[runs.rank] if again else {"error": reason}
    ranks = ", ".join(map(str, members))
    say(f"{place}{len(members)} stages of a pipeline, those of ranks {ranks}, are one program")
    runs.observed(found, outcome, apart=True)  # for a check of gradients
    refused = [one for rank in members for one in again[rank]["refused"]]
    contradicted = [one for rank in members for one in again[rank]["contradicted"]]
    joined = {"trace": output, "ops": ops, "stages": len(members)}
    return outcome | joined | {"refused": refused, "contradicted": contradicted}


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
        found, reason = runs.together(again=bool(outcome["messages"]))
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
        outcome = runs.once_more(outcome, observed) if observed["kinds"] else outcome
        return _with_own(runs, outcome, found) if found else outcome
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
    outcome = runs.once_more(outcome, observed | {"plan": plans[runs.rank]})
    return _with_own(runs, outcome, found)


def _with_own(runs: "_Runs", outcome: dict, found: dict[int, dict]) -> dict:
    """With what other ranks do otherwise, and with copies that have come apart."""
    if "error" not in outcome:
        _mark_own({runs.rank: outcome}, found, outcome["axes"])
        runs.state_drift(outcome)
    return outcome


def _confirm(runs: "_Runs", outcome: dict, options) -> None:
    """States in the trace what one rank, and the loss, say of gradients; a word where they say
    nothing."""
    if reason := runs.too_many() or _few_values(runs, outcome, options):
        say(f"gradients are not checked: {reason}")
        return
    if _compared_with_one(runs, outcome):
        return
    # Before a momentum is there, and before copies of one parameter can differ.
    first = {"step": 1} if outcome["by_hand"] or runs.apart else {}
    rows = runs.checked(runs.kinds, outcome["axes"], **first)
    if "error" in rows:
        say(f"gradients are not checked: {rows['error']}")
        return
    _debug("\n".join(map(str, rows["rows"])))
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


def _compared_with_one(runs: "_Runs", outcome: dict) -> bool:
    """States what the script makes otherwise on one rank; whether that is all there is to say."""
    answer = runs.compared_with_one(not outcome["by_hand"])
    if reason := answer.get("error") or answer.get("doubt"):
        say(f"not compared with one rank: {reason}")
        return False
    names, unlike = set(answer["compared"]), answer["unlike"]
    say(f"{len(names)} parameters were compared with one rank")
    if unlike:
        outcome["ops"] += gradcheck.state_unlike(outcome["trace"], unlike)
        return True
    return gradcheck.agree(outcome["trace"], names)


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
        variables = {}
        if sys.platform == "linux":  # ranks that run together are on one machine
            variables["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        # What the script prints is not what the command prints.
        self._server = process.Server("spmd_trace.torch.script.child", sys.stderr, **variables)
        self._later: later.Rows | None = None  # of ranks that go on after the step
        # By name: runs that wait where the step begins, to record it once more.
        self._waiting: dict[str, process.Forked] = {}

    def close(self) -> None:
        self._server.end()

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

    def once_more(self, outcome: dict, observed: dict) -> dict:
        """The step of the recorded rank once more, with what other ranks say of it."""
        name = outcome["run"] if outcome["rank"] == self.rank else ""
        found = self._repeated(name, "observed", [self.rank], observed=observed)
        return found[self.rank] if found else self.alone("observed anew", observed=observed)

    def together_again(self, name: str = "observed", **more) -> tuple[dict[int, dict], str]:
        """Likewise of all ranks."""
        found = self._repeated("together", name, list(range(self.world)), together=True, **more)
        return (found, "") if found else self.together(f"{name} anew", **more)

    def _repeated(
        self, of: str, name: str, ranks: list[int], together=False, **more
    ) -> dict[int, dict]:
        """The step of another run once more, from where it begins; nothing if that fails."""
        run = self._waiting.pop(of, None)
        if run is None:
            return {}
        folder, settings = self._settings(name, ranks, together, **more)
        process.write(self.folder / of / "again.json", json.dumps(settings))
        watch = (divergence.Watch if together else divergence.Ranks)(folder, ranks)
        limit = min(self.timeout, 10 + 3 * self.seconds * len(ranks))
        reason = _ended(run, watch, settings["script"], limit)
        run.end()
        found = self._outcomes(folder, ranks, reason)
        failed = [one["error"] for one in found.values() if "error" in one]
        if failed:
            _debug(f"the script runs anew: {failed[0]}")
        return {} if failed else found

    def _settings(self, name: str, ranks: list[int], together=False, **more):
        """A folder for a run, and its settings."""
        folder = self.folder / name
        folder.mkdir()
        settings = self.settings | {"folder": str(folder), "ranks": ranks}
        settings |= {"observed": {}, "own": {}, "again": False}
        # What it prints is enough to be said once.
        settings |= {"together": together, "silent": name != "alone"}
        return folder, settings | {"data": "real" if together else self.data} | more

    def _run(
        self, name: str, ranks: list[int], timeout=None, together=False, **more
    ) -> dict[int, dict]:
        """What each rank says: its trace and what belongs to it, or an error.

        `together`: their collectives move data; `own`: what is `observed` of some ranks alone;
        `again`: whether the step may be recorded once more (`repeated`).
        """
        folder, settings = self._settings(name, ranks, together, **more)
        (folder / "settings.json").write_text(json.dumps(settings))
        watches = together and not {"check", "keep"} & more.keys()
        watch = (divergence.Watch if watches else divergence.Ranks)(folder, ranks)
        start = time.monotonic()
        run, limit = self._server.run(folder), timeout or self.timeout
        error = _ended(run, watch, settings["script"], limit)
        if watches:
            self.parted = watch.found
            error = error if watch.all_done() else watch.reason or error
        lost = error or f"{settings['script']}: the process of the script left no trace"
        found = self._outcomes(folder, ranks, lost)
        if watches and self.parted is None:
            self._watch_later(found, run, time.monotonic() - start)
        if all(one.get("again") for one in found.values()):
            self._waiting[name] = run
        elif self._later is None or not self._later.is_of(run):
            run.end()
        return found

    def _watch_later(self, found: dict[int, dict], run: process.Forked, seconds: float) -> None:
        """Parameters whose copies have drifted apart, and which later steps bring together again,
        are exchanged: each rank trains copies of its own in between. It is waited for; the ranks
        go on."""
        outcome = found.get(self.rank, {"error": ""})
        if any("error" in one for one in found.values()) or outcome["messages"]:
            return
        folders = {rank: one["trace"].parent for rank, one in found.items()}
        self._later = later.Rows(folders, run, seconds)
        names = set(self.observed(found, outcome)["drifted"])
        together = self._later.come_together(names)
        for one in found.values():
            one["exchanged"] = sorted({*one["exchanged"], *together})

    def state_drift(self, outcome: dict) -> None:
        """Writes into a trace which parameters drift apart in the steps after it."""
        if self._later is None:
            return
        drift = self._later.drift(self.kinds, outcome["axes"], self.rank)
        self._later.end()
        if drift:
            later.state(outcome["trace"], drift)

    def _outcomes(
        self, folder: pathlib.Path, ranks: list[int], lost: str | None
    ) -> dict[int, dict]:
        found = {}
        for rank in ranks:
            written = folder / str(rank) / "outcome.json"
            there = written.exists()
            outcome = json.loads(written.read_text()) if there else {"error": lost, "lost": True}
            outcome |= {"run": folder.name, "rank": rank}
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

    def compared_with_one(self, by_optimizers: bool) -> dict:
        """What all ranks make of the first steps, compared with a single one (`unlike`), or why
        that says nothing (`error`, `doubt`)."""
        steps = 4 if self.seconds < _SHORT else 2
        keep: dict = {"by_optimizers": by_optimizers, "steps": steps, "nudge": 0.0}
        every = self._kept("kept", self.world, keep | {"others": [], "ones": False})
        if failed := [run["error"] for run in every.values() if "error" in run]:
            return {"error": failed[0]}
        keep["others"] = [run["kept"] for run in every.values()]
        keep["samplers"] = every[0]["samplers"]
        answers = {}
        # First with other numbers; as it is, where it does not run then or makes something else.
        for name, ones in (("one", True), ("one as it is", False)):
            answers[name] = self._kept(name, 1, keep | {"ones": ones})[0]
            if not any(answers[name].get(word) for word in ("error", "doubt", "unlike")):
                return answers[name]
        comparable = [name for name, one in answers.items() if not {"error", "doubt"} & one.keys()]
        if not comparable:
            return answers["one"]
        name = comparable[0]
        first = str(self.folder / name / "0" / "kept.pt")
        again = keep | {"ones": name == "one", "nudge": _NUDGE, "others": [first]}
        moved = self._kept("nudged", 1, again)[0].get("unlike", {})
        unlike = {
            name: row
            for name, row in answers[name]["unlike"].items()
            if 10 * moved.get(name, {"worst": 0})["worst"] <= row["worst"]
        }
        return answers[name] | {"unlike": unlike}

    def _kept(self, name: str, ranks: int, keep: dict) -> dict[int, dict]:
        more: dict = {"keep": keep, "step": 1, "data": "real"}
        if ranks == 1:
            more |= {"per_node": 1, "nodes": 1, "rank": 0}
        limit = min(self.timeout, 60 + ranks * self.seconds)
        return self._run(name, list(range(ranks)), limit, together=ranks > 1, **more)

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
        for rank, run in sorted(found.items(), key=lambda one: one[1].get("lost", False)):
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
        rank = self.rank if rank is None else rank
        exchanged = {*outcome["exchanged"], *found.get(rank, outcome)["exchanged"]}
        result = compared(
            rank, values, outcome["axes"], outcome["summed"], apart, () if apart else exchanged
        )
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


def _debug(text: str) -> None:
    if os.environ.get("SPMD_TRACE_DEBUG"):
        say(text)


def _ended(run: process.Forked, watch: divergence.Ranks, script: str, timeout: float) -> str | None:
    """Waits for a run, telling a person how far it is; what kept it from an outcome."""
    start = shown = time.monotonic()

    def news() -> None:
        nonlocal shown
        if not sys.stderr.isatty() or (now := time.monotonic()) - shown < _NEWS:
            return
        shown = now
        if counts := [int(one.read_text()) for one in watch.folder.glob("*/progress")]:
            say(f"{now - start:.0f} s: {sum(counts)} operations")

    try:
        code = watch.wait(run, timeout, news)
    except TimeoutError:
        where = _hanging_at(run, watch.folder / str(watch.ranks[0]))
        return f"{where}the script is not done after {timeout:.0f} s"
    finally:
        _debug(f"{watch.folder.name}: {time.monotonic() - start:.2f} s")
    if code == 0:
        return None
    ended = f"signal {-code}" if code < 0 else f"code {code}"
    return f"{script}: the process of the script ended with {ended}, and left no trace"


def _hanging_at(run: process.Forked, folder: pathlib.Path) -> str:
    """Where the script is, innermost first."""
    from .locations import SITE, is_ours

    named = folder / "pid"  # not there where torch was still being imported
    if not named.exists():
        return ""
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(named.read_text()), signal.SIGUSR1)
    end = time.monotonic() + 1
    while time.monotonic() < end and run.poll() is None:
        time.sleep(0.05)
    standard = os.path.dirname(os.__file__) + os.sep
    stacks = folder / "stacks.txt"
    text = stacks.read_text() if stacks.exists() else ""
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', text):
        if not is_ours(file) and not file.startswith((*SITE, standard, "<")):
            return f"{os.path.basename(file)}:{line}: "
    return ""
