"""Training scripts as people write them, recorded by the one command, and what the checker finds in
them."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import jsonschema
import pytest

import judged
import spmd_trace.torch  # noqa: F401  before torch: it says what to do without CUDA libraries
import torch
from traces import BUNDLED, schema, stale_uses

# What runs for every change, with its broken twins.
_SAMPLE = ["fsdp1", "tp_dtensor", "zero1_by_hand"]


@pytest.fixture(autouse=True)
def _sampled(request):
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    if str(parameters.get("name")).removesuffix("_broken") in _SAMPLE:
        return
    if not os.environ.get("SPMD_TEST_ALL"):
        pytest.skip("takes minutes: SPMD_TEST_ALL=1 runs it")


_SCRIPTS = {path.stem: path for path in (BUNDLED / "scripts").glob("*/*.py")}
_ARGUMENTS = {"megatron_by_hand": ["--tp", "2"]}
_JOBS = {"hsdp": ["--nproc-per-node", 2, "--nnodes", 2]}  # copies on each host
_RIGHT = ["ddp", "ddp_accumulation", "fsdp2", "tp_dtensor", "megatron_by_hand", "zero1_by_hand"]
_RIGHT += ["sgd_by_hand", "fsdp1", "ddp_hook", "ring", "logged_loss", "hsdp", "tp_sp_loss", "llama"]
_RIGHT += ["vocab_by_hand", "zero_optimizer", "moe", "ulysses", "compiled_resnet"]
_RIGHT += ["pipeline_by_hand", "pipeline_library", "cp_library", "weights_by_hand"]
# Those that need a package which the other tests do without.
_NEEDS = {"accelerate_ddp": "accelerate", "lightning_ddp": "lightning"}
_NEEDS |= {"lora_tp": "peft", "hf_tp": "transformers", "hf_trainer": "transformers"}
_NEEDS |= {"megatron_core": "megatron.core", "deepspeed_zero": "deepspeed"}
_RIGHT += _NEEDS
# What is found in the broken twins: findings, each with what stands in the line of the script that
# it names.
_FOUND = {
    "ddp_broken": {
        "partial-into-nonlinear": "clip_grad_norm_(",
        "unreduced-gradient": "optimizer.step()",
    },
    "ddp_accumulation_broken": {
        "partial-into-nonlinear": "clip_grad_norm_(",
        "unreduced-gradient": "step(",
    },
    "fsdp2_broken": {"norm-undercount": "limit / (norm + 1e-6)"},
    "tp_dtensor_broken": {"partial-plus-replicate": "x = x + layer(x)"},
    "megatron_by_hand_broken": {"invariant-mixed": "F.linear(x, self.weight, self.bias)"},
    "sgd_by_hand_broken": {"scale-mismatch": ".add_(grad)"},
    "fsdp1_broken": {"norm-undercount": "clip_grad_norm_("},
    "ddp_hook_broken": {"scale-mismatch": "optimizer.step()"},
    "ring_broken": {"invariant-mixed": "model(x)"},
    "logged_loss_broken": {"rank-divergence": "dist.all_reduce(parameter.grad)"},
    "zero1_by_hand_broken": {"invariant-mixed": "model(x)"},
    "weights_by_hand_broken": {"no-transition": "chunk(self.world)[self.rank]"},
    "hsdp_broken": {"copies-differ": "model(tokens"},
    "tp_sp_loss_broken": {"invariant-mixed": "self.norm(x)"},
    "vocab_by_hand_broken": {"invariant-mixed": "F.linear(x, self.embed.weight)"},
    "zero_optimizer_broken": {"invariant-mixed": "model(x)"},
    "moe_broken": {"copies-differ": "dist.all_reduce(parameter.grad)"},
    "compiled_resnet_broken": {"unreduced-gradient": "scaler.step(optimizer)"},
    "ulysses_broken": {"invariant-mixed": "one(x)"},
    "cp_library_broken": {"invariant-mixed": "self."},
    "pipeline_by_hand_broken": {"unused-gradient": "y.sum().backward()"},
    "pipeline_library_broken": {"uncleared-gradient": "schedule.step("},
    "llama_broken": {
        "norm-undercount": "torch.clamp(1.0 / (norm + 1e-6)",
        "mutation-changes-type": "optimizer.step()",
    },
}
# Found in right scripts, and false: with torch 2.6, whose FSDP2 adds 1e-6 to the norm of each rank
# before it adds them up, and whose pipelines do not divide by the number of micro-batches.
_OLD = {"fsdp2": ["norm-undercount"], "pipeline_library": ["accumulated-means"]}
_OLD = _OLD if torch.__version__.startswith("2.6.") else {}
# Found in the code of a package.
_FOUND_ELSEWHERE = {
    "accelerate_ddp_broken": {"invariant-mixed", "copies-drift"},
    "lightning_ddp_broken": {"copies-drift", "unreduced-gradient"},
    "lora_tp_broken": {"wrong-source"},
    "hf_tp_broken": {"wrong-source"},
    "hf_trainer_broken": {"copies-drift", "unreduced-gradient"},
    "megatron_core_broken": {"copies-drift", "invariant-mixed"},
    "deepspeed_zero_broken": {"rank-divergence"},
}

needs_checker = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")
needs_runner = pytest.mark.skipif("SPMDRUN" not in os.environ, reason="SPMDRUN names no runner")


def command(*words, **options):
    line = [sys.executable, "-m", "spmd_trace", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, **options)


_CHECKPOINT = """
import sys, spmd_trace.torch, torch
from transformers import LlamaConfig, LlamaForCausalLM
sizes = {"vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
torch.manual_seed(0)
LlamaForCausalLM(LlamaConfig(**sizes, **heads)).save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """The trace of a script in examples/scripts, recorded once."""
    folder = tmp_path_factory.mktemp("scripts")

    @functools.cache
    def record(name: str) -> pathlib.Path:
        path = folder / f"{name}.spmd.json"
        kind = name.removesuffix("_broken")
        arguments = _ARGUMENTS.get(kind, [])
        if kind in _NEEDS:
            pytest.importorskip(_NEEDS[kind])
        if kind == "hf_tp":
            arguments = [folder / "checkpoint"]
            done = subprocess.run([sys.executable, "-c", _CHECKPOINT, *arguments], check=False)
            assert done.returncode == 0
        words = [*_JOBS.get(kind, ["--world", 4]), "-o", path, _SCRIPTS[name], *arguments]
        done = command("record", *words)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(rf"{re.escape(str(path))}: \d+ operations\n", done.stdout)
        return path

    return record


def test_the_scripts_know_nothing_of_the_recorder():
    assert _SCRIPTS.keys() == {*_RIGHT, *_FOUND, *_FOUND_ELSEWHERE}
    assert not [name for name, path in _SCRIPTS.items() if "spmd_trace" in path.read_text()]


@pytest.mark.parametrize("name", _RIGHT)
def test_a_right_script_is_recorded_as_it_is(name, recorded):
    trace = json.loads(recorded(name).read_text())
    jsonschema.Draft202012Validator(schema()).validate(trace)
    assert trace["phase"] == "step" and stale_uses(trace) == []
    files = [file["path"] for file in trace["files"]]
    assert files[0] == f"{name}.py" and (len(files) == 1 or name in _NEEDS)
    roles = {param["role"] for param in trace["params"]}
    assert {"input", "param", "opt_state"} <= roles and ("const" not in roles or name in _NEEDS)
    # Memory that a package keeps, and writes before it reads it, holds what nobody knows.
    named = [p for p in trace["params"] if p["role"] != "const"]
    assert not [p["name"] for p in named if "?" in p["type"].values()]


@needs_checker
@pytest.mark.parametrize("name", _RIGHT)
def test_nothing_is_found_in_a_right_script(name, recorded):
    found = [report["name"] for report in judged.reports(recorded(name))]
    assert found == _OLD.get(name, [])


@needs_checker
@pytest.mark.parametrize("name", _FOUND)
def test_the_mistake_is_found_in_the_line_of_the_script(name, recorded):
    lines = _SCRIPTS[name].read_text().splitlines()
    shown = {}
    for report in judged.reports(recorded(name)):
        place = report["places"][0]
        if place["in_input"]:  # what the mistake leaves in the state, which has no line
            assert report["name"] == "claim-mismatch"
            continue
        shown.setdefault(report["name"], set()).add(lines[place["line"] - 1])
    # Of the parameters that the mistake lets drift, where they are read.
    drifts = shown.pop("copies-drift", None)
    assert shown or drifts
    if (kind := name.removesuffix("_broken")) == "pipeline_library":
        for fault in _OLD.get(kind, []):
            shown.pop(fault, None)
    assert set(shown) == set(_FOUND[name])
    for finding, text in _FOUND[name].items():
        assert all(text in line for line in shown[finding]), shown


@needs_checker
@pytest.mark.parametrize("name", _FOUND_ELSEWHERE)
def test_the_mistake_is_found_in_the_code_of_a_package(name, recorded):
    found = {report["name"] for report in judged.reports(recorded(name))}
    assert _FOUND_ELSEWHERE[name] <= found


@needs_runner
@pytest.mark.parametrize("name", _RIGHT)
def test_simulated_ranks_uphold_what_was_recorded(name, recorded):
    line = [os.environ["SPMDRUN"], "--scale-down", "--isolated", str(recorded(name))]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refuted" not in done.stdout


_TEXTS = """
import json, pathlib, tokenizers
from tokenizers import decoders, models, pre_tokenizers
words = ["<|begin_of_text|>", "<|end_of_text|>"]
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
known = {text: place for place, text in enumerate([*letters, *words])}
tokenizer = tokenizers.Tokenizer(models.BPE(vocab=known, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([tokenizers.AddedToken(one, special=True) for one in words])
assets = pathlib.Path("tests/assets")
for name in ("tokenizer", "c4_test"):
    (assets / name).mkdir(parents=True)
tokenizer.save(str(assets / "tokenizer/tokenizer.json"))
named = {"bos_token": words[0], "eos_token": words[1]}
(assets / "tokenizer/tokenizer_config.json").write_text(json.dumps(named))
rows = [json.dumps({"text": f"{n} is a number " * 20}) for n in range(99)]
(assets / "c4_test/data.json").write_text("\\n".join(rows))
"""


@needs_checker
def test_torchtitan_is_recorded_by_its_own_trainer(tmp_path):
    """By its command line, with a tokenizer and texts where its repository has them."""
    if not os.environ.get("SPMD_TEST_ALL"):
        pytest.skip("takes minutes: SPMD_TEST_ALL=1 runs it")
    for package in ("torchtitan", "tyro", "triton", "datasets", "tokenizers", "torchdata"):
        pytest.importorskip(package)
    done = subprocess.run([sys.executable, "-c", _TEXTS], cwd=tmp_path, check=False)
    assert done.returncode == 0
    words = ["--module", "llama3", "--config", "llama3_debugmodel", "--training.steps", 3]
    words += ["--training.local_batch_size", 2, "--training.seq_len", 64]
    words += ["--parallelism.tensor_parallel_degree", 2]
    line = ["record", "--world", 4, "-o", "titan.json", "-m", "torchtitan.train", *words]
    done = command(*line, cwd=tmp_path)
    assert done.returncode == 0 and "stays unknown" not in done.stderr, done.stderr
    trace = json.loads((tmp_path / "titan.json").read_text())
    axes = {axis["name"]: axis["size"] for axis in trace["meshes"][0]["axes"]}
    assert axes == {"batch": 2, "tp": 2}
    assert len([one for one in trace["params"] if one["role"] == "param"]) == 45
    assert judged.reports(tmp_path / "titan.json") == []


@needs_checker
def test_one_command_from_the_script_to_its_findings():
    done = command("lint", "--world", 2, "--format=concise", _SCRIPTS["ddp_broken"])
    assert done.returncode == 1, done.stderr
    (line,) = {
        line.split(":")[1] for line in done.stdout.splitlines() if "unreduced-gradient" in line
    }
    assert "optimizer.step()" in _SCRIPTS["ddp_broken"].read_text().splitlines()[int(line) - 1]


_TRAINS = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        loss = model(torch.randn(4, 2)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_FAILING = {
    "raises": (
        "import torch\n\nraise ValueError('no\\nluck')\n",
        "script.py:3: the script raises ValueError: no luck",
    ),
    "missing": ("\nopen('missing.bin')\n", "script.py:2: the script raises FileNotFoundError"),
    "exits": (
        _TRAINS + "train(1)\nraise SystemExit(4)\n",
        "script.py:12: the script exits with 4 after 1 of 2",
    ),
    "ends": (
        _TRAINS + "train(1)\n",
        "script.py: the script ends after 1 of 2 steps of its optimizer",
    ),
    "trains nothing": (
        "import torch\n",
        "script.py: the script ends after no step of an optimizer",
    ),
    "killed": (
        "import os\nos.kill(os.getpid(), 9)\n",
        "script.py: the process of the script ended with signal 9",
    ),
    "no Python": ("def f(:\n", "script.py:1: the script is no Python: invalid syntax"),
    "hangs": (
        "import time\n\ntime.sleep(1000)\n",
        "script.py:3: the script is not done after 20 s",
    ),
    "sends": (
        _TRAINS.replace("optimizer.zero_grad()", "dist.send(loss.detach(), 1)")
        + "import torch.distributed as dist\ndist.init_process_group()\ntrain(3)\n",
        "script.py:8: what other ranks send here is not known: rank ",
    ),
}


@pytest.mark.parametrize("case", _FAILING)
def test_a_script_that_cannot_be_recorded_gives_one_sentence(case, tmp_path):
    code, sentence = _FAILING[case]
    (tmp_path / "script.py").write_text(code)
    timeout = 20 if case == "hangs" else 100
    done = command("record", "--timeout", timeout, "--world", 2, "script.py", cwd=tmp_path)
    assert done.returncode == 3 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"spmd-trace: {sentence}")
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["script.py"]


def test_a_script_that_is_not_there(tmp_path):
    done = command("record", "none.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "spmd-trace: none.py: no such file\n")
    done = command("record", "--world", 0, "none.py", cwd=tmp_path)
    assert done.returncode == 2 and "counted from 1" in done.stderr


def test_the_script_ends_with_the_step(tmp_path):
    """Neither `finally` nor `atexit` runs, which may wait for other ranks; arguments are the
    script's."""
    code = "import atexit, sys, time\n" + _TRAINS + "atexit.register(time.sleep, 1000)\n"
    code += "try:\n    train(int(sys.argv[2]))\nfinally:\n    time.sleep(1000)\n"
    (tmp_path / "script.py").write_text(code)
    words = ["record", "--step", 3, "--timeout", 100, "script.py", "--step", 9]
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    assert trace["world"] == 8 and trace["phase"] == "step"
    again = command(*words[:-3], "-o", "again.json", *words[-3:], cwd=tmp_path)
    assert again.returncode == 0
    assert (tmp_path / "again.json").read_text() == (tmp_path / "step.spmd.json").read_text()


_SERVES = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(2, 2)
def answer(x):
    y = model(x)
    dist.all_reduce(y)
    return y.relu()
with torch.no_grad():
    for size in (1, 2, 3):
        y = answer(torch.randn(size, 2))
        print(y.sum().item())
"""


def test_a_part_between_two_lines_is_recorded(tmp_path):
    words = ["--world", 2, "--from", "script.py:6"]
    trace, _ = _recorded(tmp_path, _SERVES, *words, "--until", "script.py:8")
    assert trace["phase"] == "forward"
    assert [op["op"] for op in trace["ops"]] == ["aten.linear.default", "all_reduce_"]
    (batch,) = [p for p in trace["params"] if p["role"] == "input"]
    assert batch["shape"] == [1, 2] and batch["name"] == "x"
    trace, _ = _recorded(tmp_path, _SERVES, *words, "--step", 3)
    (batch,) = [p for p in trace["params"] if p["role"] == "input"]
    assert batch["shape"] == [3, 2] and trace["ops"][-1]["op"] != "all_reduce_"
    done = command("record", "--from", "script.py:6", "--step", 4, "script.py", cwd=tmp_path)
    assert done.returncode == 3 and "after it has reached script.py:6 3 of 4 times" in done.stderr
    done = command("record", "--from", "script.py", "script.py", cwd=tmp_path)
    assert done.returncode == 2 and "a place is FILE:LINE" in done.stderr


_FIRST = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
"""
_LINE = (
    _FIRST
    + """
    x = torch.randn(2, 4)
    left, calls = torch.zeros(2, 4), []
    if rank < world - 1:
        calls.append(dist.P2POp(dist.isend, x, rank + 1))
    if rank > 0:
        calls.append(dist.P2POp(dist.irecv, left, rank - 1))
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    (model(x) + left).square().sum().backward()
    optimizer.step()
"""
)


def _recorded(tmp_path, code: str, *words):
    (tmp_path / "script.py").write_text(code)
    done = command("record", *words, "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / "step.spmd.json").read_text()), done.stderr


def test_a_rank_that_takes_part_in_all_messages_is_recorded(tmp_path):
    trace, _ = _recorded(tmp_path, _LINE, "--world", 3)
    (moved,) = [op for op in trace["ops"] if op["op"] == "collective_permute"]
    assert trace["rank"] == 1 and moved["attrs"]["perm"] == [[0, 1], [1, 2]]
    done = command("record", "--world", 3, "--rank", 0, "script.py", cwd=tmp_path)
    assert (
        done.returncode == 3
        and "rank 0 does not take part in all messages: record one of 1" in done.stderr
    )
    done = command("record", "--world", 3, "--ranks", "one", "script.py", cwd=tmp_path)
    assert done.returncode == 3 and "what other ranks send here is not known" in done.stderr


_COPIES = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
mesh = dist.init_device_mesh("cuda", (2, 2), mesh_dim_names=("copies", "shards"))
torch.manual_seed(0)
model = fully_shard(torch.nn.Linear(8, 8, bias=False).cuda(), mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    torch.manual_seed(10 * step + dist.get_rank())
    optimizer.zero_grad()
    for _ in range(2):
        model(torch.randn(6, 8).cuda()).square().mean().backward()
    optimizer.step()
"""


def test_shards_over_copies_are_averaged_over_both(tmp_path):
    trace, _ = _recorded(tmp_path, _COPIES, "--world", 4)
    (weight,) = [p for p in trace["params"] if p["role"] == "param"]
    assert weight["type"] == {"copies": "R", "shards": "V"}
    reduced = [op for op in trace["ops"] if op["op"] in ("reduce_scatter", "all_reduce_")]
    assert [(op["attrs"]["axis"], op["attrs"]["op"]) for op in reduced] == [
        ("shards", "avg"),
        ("copies", "avg"),
    ] * 2
