"""A training step of a small transformer, as a program for eight simulated ranks and as torch for
one device: `transformer.py program` prints the program, `transformer.py compare SPMDRUN` runs both
in turn and prints the times of their steps and the ratio. Torch is needed for the second.
"""

import argparse
import pathlib
import re
import resource
import subprocess
import tempfile

DP, TP = 2, 4
BATCH, TOKENS, WIDTH, HEADS, HIDDEN, WORDS = 8, 128, 256, 8, 1024, 512
HEAD = WIDTH // HEADS


def parameters(layers):
    """Name, global shape, and the dimension that tp cuts (None: whole)."""
    yield "words", (WORDS, WIDTH), None
    for layer in range(layers):
        yield f"norm1_{layer}", (WIDTH,), None
        for name in ("query", "key", "value"):
            yield f"{name}_{layer}", (WIDTH, WIDTH), 0
        yield f"out_{layer}", (WIDTH, WIDTH), 1
        yield f"norm2_{layer}", (WIDTH,), None
        yield f"up_{layer}", (HIDDEN, WIDTH), 0
        yield f"down_{layer}", (WIDTH, HIDDEN), 1
    yield "norm", (WIDTH,), None


def program(layers=2):
    """The step on a mesh of dp by tp ranks, with its loss."""
    batch = BATCH // DP
    lines = [f"mesh m {{ dp = {DP}, tp = {TP} }}"]
    lines += [f"%{name} = input i64[{batch * TOKENS}@dp] I@tp" for name in ("tokens", "labels")]
    for name, shape, cut in parameters(layers):
        dims = [f"{n // TP}@tp" if d == cut else str(n) for d, n in enumerate(shape)]
        rest = "R@dp" if cut is not None else "R@dp I@tp"
        lines.append(f'%{name} = param f32[{", ".join(dims)}] {rest} "{name}"')
    lines.append("%h = embedding %words, %tokens")
    state = "h"

    def reduced(value, into):
        words = "axis = tp, src = P, dst = I"
        return [
            f"%{into}_r = all_reduce %{value} {{ {words} }}",
            f"%{into} = add %{state}, %{into}_r",
        ]

    def norm(value, weight, into):
        return [
            f"%{into} = rms_norm %{value}, %{weight} {{ normalized_shape = [{WIDTH}], eps = 1e-5 }}"
        ]

    def spread(value, into):
        return [f"%{into} = convert %{value} {{ axis = tp, src = I, dst = R }}"]

    for i in range(layers):
        lines += norm(state, f"norm1_{i}", f"ni{i}") + spread(f"ni{i}", f"n{i}")
        for name in ("query", "key", "value"):
            shape = f"[{batch}, {TOKENS}, {HEADS // TP}, {HEAD}]"
            lines += [
                f"%{name[0]}a{i} = linear %n{i}, %{name}_{i}",
                f"%{name[0]}b{i} = reshape %{name[0]}a{i} {{ shape = {shape} }}",
                f"%{name[0]}c{i} = permute_dims %{name[0]}b{i} {{ dims = [0, 2, 1, 3] }}",
            ]
        lines += [
            f"%a{i} = attention %qc{i}, %kc{i}, %vc{i}",
            f"%b{i} = permute_dims %a{i} {{ dims = [0, 2, 1, 3] }}",
            f"%c{i} = reshape %b{i} {{ shape = [{batch * TOKENS}, {WIDTH // TP}] }}",
            f"%d{i} = linear %c{i}, %out_{i} {{ partial = tp }}",
        ]
        lines += reduced(f"d{i}", f"e{i}")
        state = f"e{i}"
        lines += norm(state, f"norm2_{i}", f"mi{i}") + spread(f"mi{i}", f"m{i}")
        lines += [
            f"%u{i} = linear %m{i}, %up_{i}",
            f"%g{i} = gelu %u{i}",
            f"%y{i} = linear %g{i}, %down_{i} {{ partial = tp }}",
        ]
        lines += reduced(f"y{i}", f"z{i}")
        state = f"z{i}"
    lines += norm(state, "norm", "last")
    lines += [
        "%scores = linear %last, %words",
        "%mean = cross_entropy %scores, %labels { reduction = mean, partial = dp }",
        "%loss = all_reduce %mean { axis = dp, op = avg, src = P, dst = I }",
        "backward %loss",
    ]
    lines += [f"%grad_of_{name} = grad %{name}" for name, _, _ in parameters(layers)]
    return "\n".join(lines) + "\n"


def torch_step(layers=2):
    """The same step on one device, as a function without arguments."""
    import torch
    from torch.nn import functional as F

    torch.manual_seed(0)
    weights = {
        name: (torch.randn(shape) * shape[-1] ** -0.5).requires_grad_()
        for name, shape, _ in parameters(layers)
    }
    tokens = torch.randint(WORDS, (BATCH * TOKENS,))
    labels = torch.randint(WORDS, (BATCH * TOKENS,))

    def heads(x):
        return x.view(BATCH, TOKENS, HEADS, HEAD).transpose(1, 2)

    def step():
        for weight in weights.values():
            weight.grad = None
        h = F.embedding(tokens, weights["words"])
        for i in range(layers):
            n = F.rms_norm(h, (WIDTH,), weights[f"norm1_{i}"], 1e-5)
            q, k, v = (heads(F.linear(n, weights[f"{w}_{i}"])) for w in ("query", "key", "value"))
            a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            h = h + F.linear(a.reshape(BATCH * TOKENS, WIDTH), weights[f"out_{i}"])
            m = F.rms_norm(h, (WIDTH,), weights[f"norm2_{i}"], 1e-5)
            h = h + F.linear(F.gelu(F.linear(m, weights[f"up_{i}"])), weights[f"down_{i}"])
        last = F.rms_norm(h, (WIDTH,), weights["norm"], 1e-5)
        F.cross_entropy(F.linear(last, weights["words"]), labels).backward()

    return step


def processor_time(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def compare(spmdrun, layers, rounds):
    """Both in turn on one thread each; processor time per step of each, and the ratio of the best.
    A step of ours is what a run with one more seed takes, so that it includes the drawing of its
    inputs.
    """
    import torch

    torch.set_num_threads(1)
    step = torch_step(layers)
    step()
    ours, theirs, walls = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "transformer.spmd"
        file.write_text(program(layers))
        call = [
            spmdrun,
            str(file),
            "--check=off",
            "--tier=real",
            "--timing",
            "--quiet",
            "--threads=1",
        ]

        def run(seeds):
            begin = processor_time(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [*call, f"--seeds={seeds}"], capture_output=True, text=True, check=True
            )
            walls.extend(float(ms) / 1000 for ms in re.findall(r"run +([0-9.]+) ms", done.stderr))
            return processor_time(resource.RUSAGE_CHILDREN) - begin

        for _ in range(rounds):
            begin = processor_time(resource.RUSAGE_SELF)
            step()
            theirs.append(processor_time(resource.RUSAGE_SELF) - begin)
            ours.append((run(3) - run(1)) / 2)
    print(
        f"spmdrun, {DP * TP} ranks   {1000 * min(ours):8.1f} ms of processor time a step, "
        f"best of {rounds}"
    )
    print(f"  its steps alone  {1000 * min(walls):8.1f} ms by the clock")
    print(f"torch, one device  {1000 * min(theirs):8.1f} ms of processor time a step")
    print(f"ratio              {min(ours) / min(theirs):8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["program", "compare"])
    parser.add_argument("spmdrun", nargs="?", default="build/runtime/spmdrun")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    call = parser.parse_args()
    if call.what == "program":
        print(program(call.layers), end="")
    else:
        compare(call.spmdrun, call.layers, call.rounds)


if __name__ == "__main__":
    main()
