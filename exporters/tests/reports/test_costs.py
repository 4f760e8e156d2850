"""Communication that could be spared: each finding has a fix that the checker verified, and the
program after it computes the same and sends less, by as much as was said."""

import json
import os
import re
import struct
import subprocess

import pytest

from conftest import LINT, ROOT

RUN = os.environ.get("SPMDRUN", str(ROOT / "build/runtime/spmdrun"))
NAMES = (
    "cancelling-pair",
    "repeated-collective",
    "reduce-then-slice",
    "gather-then-slice",
    "fusable-collectives",
    "overlappable",
)


def call(*words, code=(0,), cwd=None):
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode in code, done.stdout + done.stderr
    return done.stdout


def page(name):
    """The program of a page of the manual that has the finding, and the same without."""
    text = call(LINT, "explain", name)
    programs = re.findall(r"(?:^  .*\n)+", text, re.MULTILINE)
    return [re.sub(r"^  ", "", one, flags=re.MULTILINE) for one in programs[-2:]]


def found(path, *options):
    out = json.loads(
        call(LINT, "check", "--format=json", "--select=perf", *options, path, code=(0,))
    )
    return out["findings"]


def sent(path):
    return sum(row["bytes"] for row in json.loads(call(LINT, "cost", "--format=json", path)))


def patched(path, folder):
    """A copy of the program with all fixes, as `check --diff` prints them."""
    diff = call(LINT, "check", "--select=perf", "--diff", path.name, cwd=path.parent)
    assert diff, "no fix is a change of the text"
    after = folder / path.name
    after.write_text(path.read_text())
    done = subprocess.run(
        ["patch", "-p0", "-s"], input=diff, text=True, cwd=folder, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stdout
    return after


def values(path, folder):
    """Of the outputs of a run on simulated ranks, per rank, as bytes; claims are upheld."""
    call(RUN, "--seed=7", f"--trace-out={folder}", path)
    names = re.findall(r"^output (%\S+)", path.read_text(), re.MULTILINE)
    return names, {one.name: one.read_bytes() for one in sorted(folder.glob("*.npy"))}


def numbers(data):
    """The f32 elements of a .npy file."""
    head = 10 + int.from_bytes(data[8:10], "little")
    return struct.unpack(f"<{(len(data) - head) // 4}f", data[head:])


def ending(program):
    """A program with its last values as outputs, so that a run compares them."""
    last = re.findall(r"^%(\w+) =", program, re.MULTILINE)[-1]
    return program + f"output %{last}\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_fix_computes_the_same_and_sends_less(name, tmp_path):
    wrong, right = page(name)
    before = tmp_path / "p.spmd"
    before.write_text(ending(wrong))
    (finding,) = found(before)
    assert finding["name"] == name and len(finding["fixes"]) == 1
    assert call(LINT, "check", "--format=json", before).count('"name": "' + name) == 0  # unasked
    (tmp_path / "after").mkdir()
    after = patched(before, tmp_path / "after")
    assert not found(after)
    if name == "overlappable":
        assert sent(after) == sent(before)
    else:
        assert sent(before) - sent(after) == int(finding["arguments"]["bytes"]) > 0
    bare = [line for line in right.splitlines() if line]
    kept = [line for line in after.read_text().splitlines() if not line.startswith("output")]
    assert len(kept) == len(bare)
    names, old = values(before, tmp_path / "old")
    again, new = values(after, tmp_path / "new")
    assert names == again and len(names) == 1
    shown = names[0].removeprefix("%") + ".npy"
    if name == "fusable-collectives":  # one ring adds in another order than two
        one, other = numbers(old[shown]), numbers(new[shown])
        assert len(one) == len(other) and any(one)
        assert max(abs(a - b) for a, b in zip(one, other)) < 1e-5
    else:
        assert old[shown] == new[shown] and len(old[shown]) > 128


@pytest.mark.parametrize("name", ("reduce-then-slice", "fusable-collectives"))
def test_an_average_stays_one(name, tmp_path):
    """A fix keeps what a call says besides its axis and kinds, or there is none."""
    wrong, _ = page(name)
    before = tmp_path / "p.spmd"
    before.write_text(ending(wrong.replace("src = P, dst = R", "op = avg, src = P, dst = R")))
    (finding,) = found(before)
    assert "op = avg" in finding["fixes"][0]["text"]
    (tmp_path / "after").mkdir()
    after = patched(before, tmp_path / "after")
    assert not found(after)
    (names, old), (_, new) = values(before, tmp_path / "old"), values(after, tmp_path / "new")
    shown = names[0].removeprefix("%") + ".npy"
    one, other = numbers(old[shown]), numbers(new[shown])
    assert any(one) and max(abs(a - b) for a, b in zip(one, other)) < 1e-5


IN_PLACE = {
    "fusable-collectives": """
trace { mode = local }
mesh m { dp = 2, tp = 4 }
%x = input f32[8, 16] P@dp P@tp
%c = neg %x
%y aliases %c = all_reduce_ mut %c { axis = tp, src = P, dst = R }
%z aliases %y = all_reduce_ mut %y { axis = dp, src = P, dst = R }
%a = gelu %z
""",
    "reduce-then-slice": """
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] P
%c = neg %x
%y aliases %c = all_reduce_ mut %c { axis = tp, src = P, dst = R }
%z = convert %y { axis = tp, src = R, dst = S(0) }
%a = gelu %z
""",
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_collectives_in_place(name, tmp_path):
    """As c10d's are; nothing else may read what is in between."""
    before = tmp_path / "p.spmd"
    before.write_text(ending(IN_PLACE[name]))
    (finding,) = found(before)
    assert finding["name"] == name and len(finding["fixes"]) == 1
    (tmp_path / "after").mkdir()
    after = patched(before, tmp_path / "after")
    assert not found(after)
    assert sent(before) - sent(after) == int(finding["arguments"]["bytes"]) > 0
    (names, old), (_, new) = values(before, tmp_path / "old"), values(after, tmp_path / "new")
    shown = names[0].removeprefix("%") + ".npy"
    one, other = numbers(old[shown]), numbers(new[shown])
    assert any(one) and max(abs(a - b) for a, b in zip(one, other)) < 1e-5
    before.write_text(ending(IN_PLACE[name].replace("%a = gelu", "%b = neg %y\n%a = gelu")))
    assert not found(before) or name == "fusable-collectives"  # %y is stale there


@pytest.mark.parametrize("name", IN_PLACE)
def test_collectives_of_a_recording(name, tmp_path):
    """A recorder states no kinds, names groups, and counts its operations."""
    text = IN_PLACE[name].replace(", src = P, dst = R", "").replace("P@dp P@tp", "V@dp V@tp")
    text = text.replace("[8, 16] P\n", "[8, 16] V\n").replace(", src = R", "")
    count = sum(one.startswith("%") and " input " not in one for one in text.splitlines())
    text = text.replace("mode = local", f"op_count = {count}")
    program, trace = tmp_path / "p.spmd", tmp_path / "p.spmd.json"
    program.write_text(text)
    call(LINT, "fmt", "--to=json", "-o", trace, program)
    (finding,) = found(trace, "--mode=local")
    assert finding["name"] == name and len(finding["fixes"]) == 1


@pytest.mark.parametrize("name", IN_PLACE)
def test_memory_of_a_parameter_is_left_to_it(name, tmp_path):
    program = tmp_path / "p.spmd"
    text = IN_PLACE[name].replace("%c = neg %x", "%c aliases %x = view %x { size = [8, 16] }")
    program.write_text(ending(text))
    assert name == "fusable-collectives" or not found(program)


SILENT = {
    "another use of the whole": """
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%y = all_gather %x { axis = tp, src = S(0), dst = R }
%z = convert %y { axis = tp, src = R, dst = S(0) }
%a = gelu %y
%b = gelu %z
""",
    "the whole is an output": """
mesh m { tp = 4 }
%x = input f32[8, 16] P
%y = all_reduce %x { axis = tp, src = P, dst = R }
%z = convert %y { axis = tp, src = R, dst = S(0) }
output %y
output %z
""",
    "computed again in the backward": """
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%y = all_gather %x { axis = tp, src = S(0), dst = R } { phase = fwd }
%z = all_gather %x { axis = tp, src = S(0), dst = R } { phase = bwd }
%a = mul %y, %z
""",
    "another dimension comes back": """
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%y = all_to_all %x { axis = tp, src = S(0), dst = S(1) }
%z = gelu %y
%a = all_to_all %z { axis = tp, src = S(1), dst = S(0) }
""",
    "addends do not come back": """
mesh m { tp = 4 }
%x = input f32[8, 16] P
%y = all_reduce %x { axis = tp, src = P, dst = R }
%z = convert %y { axis = tp, src = R, dst = P }
%a = neg %z
""",
    "one sum is a maximum": """
mesh m { dp = 2, tp = 4 }
%x = input f32[8, 16] P(max)@dp P@tp
%y = all_reduce %x { axis = tp, src = P, dst = R }
%z = all_reduce %y { axis = dp, op = max, src = P(max), dst = R }
""",
    "no product in between": """
mesh m { tp = 4 }
%x = input f32[8, 16] S(0)
%y = gelu %x
%a = neg %x
%z = all_gather %y { axis = tp, src = S(0), dst = R }
%b = neg %z
""",
}


@pytest.mark.parametrize("why", SILENT)
def test_what_is_needed_is_not_reported(why, tmp_path):
    program = tmp_path / "p.spmd"
    text = SILENT[why].replace(" } { phase = fwd }", ", phase = fwd }")
    program.write_text(
        "trace { mode = local }" + text.replace(" } { phase = bwd }", ", phase = bwd }")
    )
    done = subprocess.run(
        [LINT, "check", "--format=json", "--extend-select=perf", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    names = {one["name"] for one in json.loads(done.stdout)["findings"]}
    assert not names & set(NAMES)
    assert done.returncode == 0 or why == "one sum is a maximum", done.stdout


def test_a_recorded_step_has_fixes_in_words(tmp_path):
    """Fixes of traces are no change of a text that people write; they are verified all the same."""
    program = tmp_path / "p.spmd"
    program.write_text(ending(page("cancelling-pair")[0]))
    trace = tmp_path / "p.spmd.json"
    call(LINT, "fmt", "--to=json", "-o", trace, program)
    (finding,) = found(trace)
    assert finding["fixes"][0]["text"] == "drop both: %z is %x"


def test_a_suppression_counts(tmp_path):
    program = tmp_path / "p.spmd"
    program.write_text(
        page("cancelling-pair")[0].replace(
            "\n%x", '\nsuppress cancelling-pair { reason = "x" }\n%x'
        )
    )
    for select in ("default", "perf", "all"):
        text = call(LINT, "check", "--format=concise", f"--select={select}", program)
        assert "cancelling-pair" not in text and "unused" not in text


STEPS = {
    "gathered, then cut along another dimension": (
        "f32[8@tp, 16]",
        "f32[32, 4@tp]",
        "%y = all_gather %x { axis = tp, src = S(0), dst = R }\n"
        "%z = convert %y { axis = tp, src = R, dst = S(1) }\n",
    ),
    "there and back": (
        "f32[8@tp, 16]",
        "f32[8@tp, 16]",
        "%y = all_gather %x { axis = tp, src = S(0), dst = R }\n"
        "%z = convert %y { axis = tp, src = R, dst = S(0) }\n",
    ),
    "summed, then cut": (
        "f32[8, 16] P@tp",
        "f32[2@tp, 16]",
        "%y = all_reduce %x { axis = tp, src = P, dst = R }\n"
        "%z = convert %y { axis = tp, src = R, dst = S(0) }\n",
    ),
    "as cheap as it gets": (
        "f32[8, 16] P@tp",
        "f32[8, 16] R@tp",
        "%z = all_reduce %x { axis = tp, src = P, dst = R }\n",
    ),
}


def costs(program):
    rows = json.loads(call(LINT, "cost", "--format=json", program))
    return sum(row["bytes"] for row in rows), sum(row["cheapest"] for row in rows)


@pytest.mark.parametrize("what", STEPS)
def test_the_cheapest_is_what_plan_finds(what, tmp_path):
    source, target, steps = STEPS[what]
    program = tmp_path / "p.spmd"
    program.write_text(f"mesh m {{ tp = 4 }}\n%x = input {source}\n{steps}output %z\n")
    words = ("--mesh=tp=4", "--price=forward", "--memory=none", "--format=json")
    plan = json.loads(call(LINT, "plan", f"{source} -> {target}", *words))
    now, cheapest = costs(program)
    assert cheapest == plan["bytes"] <= now
    assert (cheapest < now) == (what != "as cheap as it gets")
    program.write_text(program.read_text() + "output %y\n" * ("%y" in steps))
    assert what == "as cheap as it gets" or costs(program)[1] == costs(program)[0]


NOT_EQUIVALENT = {
    "an average": """
%x = input f32[8, 16] P@tp
%y = all_reduce %x { axis = tp, op = avg, src = P, dst = R }
%z = convert %y { axis = tp, src = R, dst = S(0) }
""",
    "copies that are taken for addends": """
%x = input f32[8@tp, 16]
%y = all_gather %x { axis = tp, src = S(0), dst = R }
%c = reinterpret %y { axis = tp, src = R, dst = P, expert = true }
%z = reduce_scatter %c { axis = tp, src = P, dst = S(0) }
""",
    "blocks that change places": """
trace { mode = local }
%x = input f32[4, 16] V
%z = all_to_all %x { axis = tp, src = S(0), dst = S(0) }
""",
}


@pytest.mark.parametrize("what", NOT_EQUIVALENT)
def test_what_is_no_redistribution_has_no_cheaper_plan(what, tmp_path):
    text = NOT_EQUIVALENT[what]
    mesh = "mesh m { tp = 4 }\n"
    program = tmp_path / "p.spmd"
    lines = text.strip().splitlines()
    at = 1 if lines[0].startswith("trace") else 0
    program.write_text("\n".join([*lines[:at], mesh.strip(), *lines[at:], "output %z", ""]))
    now, cheapest = costs(program)
    assert now == cheapest > 0
