"""Recorded steps are altered in their backward or their synchronisation, and each step that is
wrong must be refused or refuted.

The steps are of PyTorch: two layers of a transformer on 2 x 2 ranks, the same replicated (DDP), and
one sharded (FSDP).

usage: recorded.py SPMDRUN FOLDER [--mutants N] [--seed N]
"""

import argparse
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile


def backward(trace):
    return [op for op in trace["ops"] if op.get("phase") in ("bwd", "opt")]


def is_collective(op):
    return op["op"].rstrip("_") in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


def shapes(trace):
    """Element type and extents by value."""
    known = {param["id"]: (param["dtype"], tuple(param["shape"])) for param in trace["params"]}
    for op in trace["ops"]:
        for out in op["out"]:
            known[out["id"]] = (out["dtype"], tuple(out["shape"]))
    return known


# --- alterations: each changes a copy of a trace and says what it did, or gives nothing -----------


def factor(trace, rng):
    """A gradient times 3."""
    ops = [
        op
        for op in backward(trace)
        if len(op["out"]) == 1
        and "grad_of" in op["out"][0]
        and not op.get("mut")
        and not op["op"].startswith("aten.ones_like")
    ]
    op = rng.choice(ops)
    out = op["out"][0]
    plain = {key: value for key, value in out.items() if key != "grad_of"} | {"id": "%before"}
    times = {key: value for key, value in op.items() if key not in ("attrs", "kw")}
    times |= {
        "op": "aten.mul.Tensor",
        "in": ["%before", 3.0],
        "out": [{key: value for key, value in out.items() if key != "alias_of"}],
    }
    op["out"] = [plain]
    trace["ops"].insert(trace["ops"].index(op) + 1, times)
    trace["op_count"] += 1
    return f"3 times {out['id']}"


def other_mean(trace, rng):
    """A sum for an average, or an average for a sum."""
    ops = [
        op
        for op in backward(trace)
        if is_collective(op) and op["op"].rstrip("_") in ("all_reduce", "reduce_scatter")
    ]
    if not ops:
        return ""
    op = rng.choice(ops)
    attrs = op.setdefault("attrs", {})
    attrs["op"] = "sum" if attrs.get("op") == "avg" else "avg"
    return f"{attrs['op']} in {op['out'][0]['id']}"


def dropped(trace, rng):
    """A sum over ranks that is left out."""
    ops = [
        op
        for op in backward(trace)
        if op["op"].rstrip("_") == "all_reduce" and isinstance(op["in"][0], str)
    ]
    if not ops:
        return ""
    op = rng.choice(ops)
    op.pop("attrs", None)
    op.pop("mut", None)
    op["op"] = "aten.clone.default"
    for out in op["out"]:
        out.pop("alias_of", None)
    return f"no sum in {op['out'][0]['id']}"


def other_operand(trace, rng):
    """Another value of the same extents in the place of an operand."""
    known, seen, found = shapes(trace), [param["id"] for param in trace["params"]], []
    for op in trace["ops"]:
        named = op["op"].split(".")
        if op.get("phase") == "bwd" and len(named) > 1 and named[1] in ("mm", "mul", "bmm", "add"):
            for place, operand in enumerate(op["in"]):
                similar = [
                    value
                    for value in seen
                    if isinstance(operand, str)
                    and value != operand
                    and known[value] == known.get(operand)
                ]
                found += [(op, place, value) for value in similar[-3:]]
        seen += [out["id"] for out in op["out"]]
    op, place, value = rng.choice(found)
    was = op["in"][place]
    op["in"][place] = value
    return f"{value} for {was} in {op['out'][0]['id']}"


ALTERATIONS = (factor, other_mean, dropped, other_operand)

# What was altered and changes no gradient, and why.
EQUAL = {
    # A copy, a view or a detached name of the very value.
}


def edit(name, change):
    """Sets fields of an op, by the first value that it makes."""

    def apply(trace):
        for op in trace["ops"]:
            if op["out"] and op["out"][0]["id"] == name:
                change(op)
                return
        raise ValueError(name)

    return apply


def averages_are_sums(trace):
    for op in backward(trace):
        if is_collective(op) and op.get("attrs", {}).get("op") == "avg":
            op["attrs"]["op"] = "sum"


# Each by itself, with what must be said of it.
KNOWN = (
    (
        "tp",
        "a factor of attention",
        edit("%163", lambda op: op.update({"in": ["%162", 3**0.5]})),
        "it is 3.0 times that of one device",
    ),
    (
        "tp",
        "an average over too many",
        edit("%218", lambda op: op.update({"in": ["%217", 0.25]})),
        "it is 0.5 times that of one device",
    ),
    (
        "tp",
        "an average over tp",
        edit("%66", lambda op: op["attrs"].update({"op": "avg"})),
        "it is 2.0 times that of one device",
    ),
    ("ddp", "sums for averages", averages_are_sums, "it is 4.0 times that of one device"),
    ("fsdp", "sums for averages", averages_are_sums, "it is 4.0 times that of one device"),
)


def run(spmdrun, trace, folder, number):
    path = pathlib.Path(folder) / f"{number}.spmd.json"
    path.write_text(json.dumps(trace))
    done = subprocess.run(
        [spmdrun, "--format=concise", "--isolated", "--tier=real", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def same_value(trace, a, b):
    """Names of one tensor: copies and detached names."""

    def source(value):
        for op in trace["ops"]:
            if (
                op["out"]
                and op["out"][0]["id"] == value
                and op["op"].split(".")[0:2] in (["aten", "detach"], ["aten", "clone"])
                and op.get("phase") != "opt"
            ):
                return source(op["in"][0])
        return value

    return source(a) == source(b)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("spmdrun")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    traces = {
        path.name.split(".")[0]: json.loads(path.read_text())
        for path in sorted(args.folder.glob("*.spmd.json"))
    }
    jobs = [(name, "as it is", trace, None) for name, trace in traces.items()]
    for name, what, change, said in KNOWN:
        altered = copy.deepcopy(traces[name])
        change(altered)
        jobs.append((name, what, altered, said))
    rng = random.Random(args.seed)
    for name, trace in traces.items():
        for number in range(args.mutants):
            altered = copy.deepcopy(trace)
            what = ALTERATIONS[number % len(ALTERATIONS)](altered, rng)
            if what and " for " in what:
                value, was = what.split(" in ")[0].split(" for ")
                if same_value(trace, value, was):
                    continue
            if what and (name, what) not in EQUAL:
                jobs.append((name, what, altered, ""))
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        results = list(
            pool.map(lambda job: run(args.spmdrun, job[1][2], folder, job[0]), enumerate(jobs))
        )
    failed = 0
    for (name, what, _, wanted), (code, said) in zip(jobs, results):
        right = (
            code == 0 and "not compared" not in said
            if wanted is None
            else code == 1 and wanted in said
        )
        if not right:
            failed += 1
            print(f"{name}, {what}: exit {code}\n{said}")
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
