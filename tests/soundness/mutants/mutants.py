"""Recorded steps that are right, with one edit each that people make by mistake. A step whose
gradients are wrong then is to be found; what is counted as proved has to be right.

usage: mutants.py SPMDLINT SPMDRUN TRACE|FOLDER... [--places N] [--seed N] [--only WORDS]
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import edits
from executed import NotRun, Runner, same, share_of_numbers
from steps import Step

FATES = (
    "found",
    "found, right",
    "right",  # no parameter differs
    "unproved",  # wrong and silent, and not counted as proved
    "another model",  # one device would compute something else, too
    "UNSOUND",
    "unread",  # the edit made no program
    "not run",
)


def check(spmdlint, path):
    line = [spmdlint, "check", "--isolated", "--no-fixes", "--format=json", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(f"spmdlint: exit code {done.returncode}: {done.stderr}")
    answer = json.loads(done.stdout)
    return answer["inputs"][0], answer["findings"]


class Recording:
    def __init__(self, args, path):
        self.args, self.path = args, path
        self.trace = json.loads(path.read_text(encoding="utf-8"))
        self.fates = collections.Counter()  # by kind of edit and fate
        self.findings = collections.Counter()
        self.said = []

    def is_proved(self, folder, trace, param):
        """On every axis; counted where the step trains this parameter alone."""
        alone = dict(trace)
        alone["outputs"] = [
            output
            for output in trace["outputs"]
            if output.get("of") == param or output["role"] == "loss"
        ]
        path = pathlib.Path(folder) / "alone.spmd.json"
        path.write_text(json.dumps(alone), encoding="utf-8")
        said, _ = check(self.args.spmdlint, path)
        return all(count == said["trained"] > 0 for count in said["proved"].values())

    def fate(self, folder, trace, changes):
        path = pathlib.Path(folder) / "checked.spmd.json"
        path.write_text(json.dumps(trace), encoding="utf-8")
        said, findings = check(self.args.spmdlint, path)
        if not said["read"]:
            return "unread", said["errors"][0]["message"]
        names = " ".join(sorted({finding["name"] for finding in findings}))
        if findings and not self.args.alarms:
            return "found", names
        try:
            wrong = self.wrong_parameters(trace)
        except NotRun as why:
            return ("found", names) if findings else ("not run", str(why))
        if findings:
            return ("found" if wrong else "found, right"), names
        if not wrong:
            return "right", ""
        proved = [param for param in wrong if self.is_proved(folder, trace, param)]
        if not proved:
            return "unproved", ", ".join(wrong)
        other = changes == "model" and not any(wrong[param] for param in proved)
        return ("another model" if other else "UNSOUND"), ", ".join(proved)

    def wrong_parameters(self, trace):
        """Those that differ, and whether they differ between ranks on which they were equal."""
        wrong = {}
        for runner, meant in zip(self.runners, self.meant):
            results = runner.outcome(trace)
            for param, each in meant.items():
                if not same(each, results[param]):
                    apart = self.come_apart(each, results[param])
                    wrong[param] = wrong.get(param, False) or apart
        return wrong

    @staticmethod
    def come_apart(meant, results):
        return any(
            one == meant[first] and not same([results[first]], [results[place]])
            for place, one in enumerate(meant)
            for first in range(place)
        )

    def prepare(self, folder):
        """Why the recording is not used; nothing: it is."""
        path = pathlib.Path(folder) / "checked.spmd.json"
        path.write_text(json.dumps(self.trace), encoding="utf-8")
        said, findings = check(self.args.spmdlint, path)
        if findings or not said["read"]:
            return "it has findings"
        if not said.get("trained"):
            return "it trains no parameter"
        try:
            self.runners = [
                Runner(self.args.spmdrun, folder, self.trace, seed) for seed in self.args.seeds
            ]
            self.meant = [runner.outcome(self.trace) for runner in self.runners]
        except NotRun as why:
            return f"it does not run: {why}"
        for meant in self.meant:
            if min(map(share_of_numbers, meant.values())) < 0.1:
                return "its results are no numbers"
        self.proved = f"{said['trained']} trained, proved {said['proved']}"
        return ""

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            why = self.prepare(folder)
            if why:
                self.said.append(f"{self.path.name}: not used, {why}")
                return self
            self.said.append(f"{self.path.name}: {self.proved}")
            step = Step(self.trace)
            for name, (changes, finder) in edits.EDITS.items():
                if self.args.only and self.args.only not in name:
                    continue
                chance = random.Random(f"{self.args.seed} {self.path.name} {name}")
                places = list(finder(step))
                for what, change in chance.sample(places, min(len(places), self.args.places)):
                    mutant = Step(self.trace)
                    change(mutant)
                    fate, why = self.fate(folder, mutant.trace, changes)
                    self.count(name, fate, why)
                    if fate in self.args.show:
                        self.said.append(f"{self.path.name}: {name}, {what}: {fate}: {why}")
                    if fate == "UNSOUND" and self.args.keep:
                        self.keep(mutant.trace)
        return self

    def count(self, name, fate, why):
        self.fates[name, fate] += 1
        if fate.startswith("found"):
            for finding in why.split():
                self.findings[name, fate, finding] += 1

    def keep(self, trace):
        kept = pathlib.Path(self.args.keep) / f"{len(os.listdir(self.args.keep))}.{self.path.name}"
        kept.write_text(json.dumps(trace), encoding="utf-8")
        self.said.append(f"  kept as {kept}")


def table(fates):
    width = max(map(len, edits.EDITS))
    print(" " * width, *FATES, sep="  ")
    for name in edits.EDITS:
        counts = [str(fates[name, fate]).rjust(len(fate)) for fate in FATES]
        print(name.ljust(width), *counts, sep="  ")
    totals = [
        str(sum(fates[name, fate] for name in edits.EDITS)).rjust(len(fate)) for fate in FATES
    ]
    print("all".ljust(width), *totals, sep="  ")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("spmdlint")
    parser.add_argument("spmdrun")
    parser.add_argument("traces", nargs="+", type=pathlib.Path)
    places = 24 if os.environ.get("SPMD_TEST_ALL") else 3
    parser.add_argument("--places", type=int, default=places, help="of each kind of edit")
    parser.add_argument("--seed", type=int, default=1, help="of what is edited")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the numbers")
    parser.add_argument("--only", help="kinds of edits")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", nargs="*", default=["UNSOUND"], help="edits with these fates")
    parser.add_argument("--keep", help="a folder for unsound programs")
    parser.add_argument("--alarms", action="store_true", help="run what was found, too")
    parser.add_argument("--findings", action="store_true", help="what was found, by kind")
    args = parser.parse_args()
    args.spmdlint, args.spmdrun = map(os.path.abspath, (args.spmdlint, args.spmdrun))
    return args


def main():
    args = options()
    paths = []
    for path in args.traces:
        paths += sorted(path.glob("*.json")) if path.is_dir() else [path]
    paths.sort(key=lambda path: path.stat().st_size)
    fates, findings = collections.Counter(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(Recording(args, path).run) for path in paths]
        for job in concurrent.futures.as_completed(jobs):
            recording = job.result()
            fates += recording.fates
            findings += recording.findings
            print(*recording.said, sep="\n", flush=True)
    table(fates)
    if args.findings:
        for (name, fate, finding), count in sorted(findings.items()):
            print(f"{name}: {fate}: {finding} {count}")
    unsound = sum(fates[name, "UNSOUND"] for name in edits.EDITS)
    wrong = sum(fates[name, "found"] + fates[name, "unproved"] for name in edits.EDITS)
    return bool(unsound) or not wrong


if __name__ == "__main__":
    sys.exit(main())
