"""Every place where two extents meet: SPMDLINT. Each row is a program with {a} and {b}. Where they
are numbers that differ something is refused; where they are symbols of which nothing is known it is
asked, once; the same symbol says nothing."""

import json
import os
import subprocess
import sys
import tempfile

HEAD = "symbol s {{ min = 2, max = 64 }}\nsymbol t {{ min = 2, max = 64 }}\nmesh m {{ tp = 2 }}\n"
LOCAL = "trace {{ mode = local }}\n" + HEAD
TABLE = {
    "add": HEAD + "%x = input f32[{a}, 3] R\n%y = input f32[{b}, 3] R\n%z = add %x, %y\n",
    "add of shards": HEAD
    + "%x = input f32[{a}@tp, 3]\n%y = input f32[{b}@tp, 3]\n%z = add %x, %y\n",
    "matmul": HEAD + "%x = input f32[3, {a}] R\n%y = input f32[{b}, 5] R\n%z = matmul %x, %y\n",
    "linear": HEAD + "%x = input f32[3, {a}] R\n%y = input f32[5, {b}] R\n%z = linear %x, %y\n",
    "einsum": HEAD
    + "%x = input f32[3, {a}] R\n%y = input f32[{b}, 5] R\n"
    + '%z = einsum [%x, %y] {{ equation = "ij,jk->ik" }}\n',
    "where": HEAD + "%c = input bool[{a}] R\n%x = input f32[{b}] R\n%z = where %c, %x, %x\n",
    "layer_norm": HEAD
    + "%x = input f32[3, {a}] R\n%w = input f32[{b}] R\n"
    + "%z = layer_norm %x, %w {{ normalized_shape = [{a}] }}\n",
    "cat": HEAD
    + "%x = input f32[{a}, 3] R\n%y = input f32[{b}, 5] R\n%z = cat [%x, %y] {{ dim = 1 }}\n",
    "stack": HEAD
    + "%x = input f32[{a}] R\n%y = input f32[{b}] R\n%z = stack [%x, %y] {{ dim = 0 }}\n",
    "reshape": HEAD + "%x = input f32[{a}, 3] R\n%z = reshape %x {{ shape = [{b}, 3] }}\n",
    "expand": HEAD + "%x = input f32[{a}] R\n%z = expand %x {{ size = [5, {b}] }}\n",
    "declared result": HEAD + "%x = input f32[{a}, 3] R\n%z: f32[{b}, 3] R = neg %x\n",
    "declared result of a collective": HEAD + "%x = input f32[{a}, 3] P\n"
    "%z: f32[{b}, 3] R = all_reduce %x {{ axis = tp, src = P, dst = R }}\n",
    "assert_type": HEAD
    + "%x = input f32[{a}, 3] R\n%z = assert_type %x {{ type = f32[{b}, 3] R }}\n",
    "redistribute": HEAD
    + "%x = input f32[{a}, 3] R\n%z = redistribute %x {{ to = f32[{b}, 3] R }}\n",
    "store": HEAD + "%x = input f32[{a}, 3] R\n%b = buffer f32[{b}, 3] R\nstore %b, %x\n",
    "parameter of a function": HEAD
    + "func @f(%p: f32[{b}, 3] R) {{\n  %q = neg %p\n  return %q\n}}\n"
    "%x = input f32[{a}, 3] R\n%z = call %x {{ body = @f }}\n",
    "branches": HEAD
    + "func @f(%p: f32[{a}] R, %q: f32[{b}] R) {{\n  %r = neg %p\n  return %r\n}}\n"
    "func @g(%p: f32[{a}] R, %q: f32[{b}] R) {{\n  %r = neg %q\n  return %r\n}}\n"
    "%c = input bool[] R\n%x = input f32[{a}] R\n%y = input f32[{b}] R\n"
    "%z = cond %c, %x, %y {{ then = @f, else = @g }}\n",
    "scanned operands": HEAD
    + "func @f(%c: f32[] R, %p: f32[] R, %q: f32[] R) {{\n  %r = add %c, %p\n  return %r\n}}\n"
    "%c = input f32[] R\n%x = input f32[{a}] R\n%y = input f32[{b}] R\n"
    "%z = scan %c, %x, %y {{ carry = 1, body = @f }}\n",
    "gradient": "trace {{ phase = joint }}\n"
    + HEAD
    + "%x = input f32[{a}, 3] R\n%y = neg %x\n%g = input f32[{b}, 3] P\n"
    "%d grad_of %x = neg %g {{ phase = bwd }}\n",
    "declared result in local code": LOCAL
    + "%x = input f32[{a}, 3] P\n%z: f32[{b}, 3] P = add %x, %x\n",
}
UNKNOWN = "undecided-extents"


def names(binary, path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    done = subprocess.run(
        [binary, "check", "--format=json", "--no-fixes", path], capture_output=True, check=False
    )
    if done.returncode not in (0, 1):
        return [f"exit code {done.returncode}: {done.stderr.decode(errors='replace')[:200]}"]
    return sorted(finding["name"] for finding in json.loads(done.stdout)["findings"])


def judge(binary, path, row):
    """What is wrong, a sentence each."""
    same = names(binary, path, row.format(a="s", b="s"))
    numbers = names(binary, path, row.format(a="8", b="9"))
    apart = names(binary, path, row.format(a="s", b="(s + 1)"))
    unknown = names(binary, path, row.format(a="s", b="t"))
    half = names(binary, path, row.format(a="s", b="9"))
    others = [name for name in same if name == UNKNOWN or name.endswith("mismatch")]
    if others:
        yield f"one symbol: {others}"
    if set(numbers) <= set(same):
        yield f"8 and 9 are not refused: {numbers}"
    if apart != numbers:
        yield f"s and s + 1: {apart}, 8 and 9: {numbers}"
    for words, found in (("s and t", unknown), ("s and 9", half)):
        if found != sorted(same + [UNKNOWN]):
            yield f"{words}: {found}, not {UNKNOWN} once"


def main():
    binary = os.path.abspath(sys.argv[1])
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.spmd")
        for name, row in TABLE.items():
            wrong += [f"{name}: {problem}" for problem in judge(binary, path, row)]
    for line in wrong:
        print(line)
    print(f"{len(TABLE) - len({line.split(':')[0] for line in wrong})} passed, {len(wrong)} wrong")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
