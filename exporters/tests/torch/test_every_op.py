"""Every op that a training step can run has a rule, and the rule fits what torch does.

By torch's own lists: its dispatcher's, its samples of functions and its samples of modules. The
samples are recorded, forward and backward, and checked; a part of them, unless SPMD_TEST_ALL is
set.
"""

import collections
import json
import os
import re
import subprocess

import pytest

import judged
import of_one_torch  # noqa: F401  the lists are of one version
import spmd_trace.torch  # noqa: F401  before torch: it says what to do without CUDA libraries
import torch
from spmd_trace.torch import Axis, Mesh, Recorder, signatures
from torch.utils import _pytree

pytestmark = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")

ALL = bool(os.environ.get("SPMD_TEST_ALL"))
SAMPLES = 16 if ALL else 3  # of each function
STEP = 1 if ALL else 6  # every so manieth function

# Ops without a row, by patterns of their names, and why they need none.
WITHOUT = {
    r"_?(co|r|c)?(w|c)?(ol|row)?_?(indices|values)(_copy)?": "of sparse tensors",
    r"(col|ccol|crow|row)_indices(_copy)?": "of sparse tensors",
    r".*(sparse|coalesce|_coo|csr|cslt|hspmm|spdiags|spsolve).*": "of sparse tensors",
    r"_?(nested|jagged|padded_dense).*|.*_(nested|jagged).*|to_padded_tensor": "of nested tensors",
    r".*quantize.*|quantized_.*|int_repr|q_per_channel.*|.*_obs_fq_.*": "of quantised tensors",
    r".*(int4pack|int8pack|4bit|mixed_dtypes|quantized).*": "of quantised weights",
    r"_scaled_(mm|grouped_mm)_v2|_scaled_addmm_?": "of numbers of 8 bits, scaled by lists",
    r"mkldnn_(?!rnn).*|.*_mkldnn|_mkldnn_.*": "of tensors in a layout of oneDNN, for inference",
    r"miopen_.*|.*_?mps(_.*)?|_nnpack_.*": "of devices that no recording is made with",
    r"_(triton|transform)_.*|_?native_multi_head.*|_transformer_.*|_masked_softmax.*": (
        "a fast path of inference"
    ),
    r"_?slow_conv.*|conv_depthwise3d|cudnn_convolution_.*|convolution_backward_overrideable": (
        "what `convolution` calls below the recorder"
    ),
    r"batch_norm_update_stats|_grid_sampler_2d_cpu_fallback.*|max_pool2d_backward": (
        "called below the recorder"
    ),
    r"_(linalg_)?(cholesky_solve_helper|compute_linear_combination)": "called below the recorder",
    r"_embedding_bag_forward_only|native_norm|matmul_backward": "called below the recorder",
    r".*_no_dropout_inplace|_fill_mem_eff_dropout_mask_|_resize_output_?": (
        "called below the recorder"
    ),
    r"_copy_from.*|_pin_memory|shallow_copy_data_|_new_zeros_.*": "called below the recorder",
    r"resize_?|resize_as_?|set": "of storages: nothing says what the elements are",
    r"_(add_relu|addmm_activation|unsafe_masked_index.*)_?": "written by compilers",
    r"_functional_(assert|sym).*": "of exported programs: it gives no tensor of numbers",
    r"_?(make_dual|fw_primal).*|glu(_backward)?_jvp": "of derivatives forwards",
    r"_philox_.*": "random numbers by keys, of no layer yet",
    r"_histogramdd_.*|hash_tensor|frexp": "numbers that are read, not trained through",
    r"special_(airy|.*bessel|.*polynomial).*": "a special function that no network is made of",
    r"(deg2rad|rad2deg)_?": "degrees, which no layer has",
    r"_test_.*|_foobar": "torch's own tests",
}
_WITHOUT = {re.compile(f"(?:{pattern})"): reason for pattern, reason in WITHOUT.items()}

# Functions of whose samples the checker says that something is wrong, and why it does.
SAID = dict.fromkeys(
    ["_batch_norm_with_update", "_native_batch_norm_legit"],
    "the statistics that they write stand before their results",
)
SAID |= dict.fromkeys(
    ["nn.functional.nll_loss", "nn.functional.multilabel_margin_loss"], "without a batch"
)
SAID |= dict.fromkeys(["cdist", "masked_scatter"], "what is broadcast is none")
SAID |= dict.fromkeys(
    [f"nn.functional.linear_cross_entropy.chunked{way}" for way in ("", "_none")],
    "an op of torch's Python, which gives gradients beside the loss",
)


def needs_a_row(spelling: str) -> bool:
    name = spelling.split(".")[1]
    return not any(pattern.fullmatch(name) for pattern in _WITHOUT)


def _is_of_tensors(schema) -> bool:
    given, made = schema.arguments, schema.returns
    return any("Tensor" in str(one.type) for one in given) and any(
        "Tensor" in str(one.type) for one in made
    )


def dispatched() -> list[str]:
    """The ops of torch that are not made of others: what a recorder can see."""
    found = []
    for schema in torch._C._jit_get_all_schemas():
        name = f"{schema.name}.{schema.overload_name}".removesuffix(".")
        if not schema.name.startswith("aten::") or not _is_of_tensors(schema):
            continue
        outputs = any(one.is_out for one in schema.arguments)  # spelled like those without
        if outputs or not torch._C._dispatch_has_kernel(name):
            continue
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
            found.append(f"aten.{schema.name[6:]}.{schema.overload_name or 'default'}")
    return sorted(found)


def test_every_op_of_the_dispatcher_has_a_row():
    names = dispatched()
    assert len(names) > 1000
    unknown = set(names) - signatures.known(names)
    missing = sorted(filter(needs_a_row, unknown))
    assert not missing, f"{len(missing)} of {len(names)} have no row"
    spelled = {name.split(".")[1] for name in unknown}
    idle = [p.pattern for p in _WITHOUT if not any(map(p.fullmatch, spelled))]
    assert not idle, "these exceptions except nothing"


def _tensors(tree) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def record(function, given) -> str:
    """The trace of a call and of its backward; what is given is the same on all ranks."""
    recorder = Recorder(Mesh("m", [Axis("tp", 2, 1)]))
    declared: set[int] = set()
    for tensor in _tensors(given):
        tensor.grad = None  # samples share tensors
        if id(tensor) not in declared:
            recorder.declare(tensor, "input", f"x{len(declared)}", type={"tp": "I"})
        declared.add(id(tensor))
    with recorder.recording():
        smooth = [
            one for one in _tensors(function()) if one.is_floating_point() and one.requires_grad
        ]
        if smooth:
            recorder.backward(sum(one.sum() for one in smooth))
    return spmd_trace.torch.dumps(recorder.program)


def functions():
    """By name: calls of torch's functions that have a derivative, with what they are given."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if torch.float32 not in info.dtypes or not info.supports_autograd:
            continue
        samples = info.sample_inputs("cpu", torch.float32, requires_grad=True)
        calls = [
            (lambda f=info, s=s: f(s.input, *s.args, **s.kwargs), (s.input, s.args, s.kwargs))
            for _, s in zip(range(SAMPLES), samples)
        ]
        yield info.full_name, calls


def modules():
    """By name: calls of modules of torch.nn in training."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if torch.float32 not in info.dtypes:
            continue
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=True
        )
        calls = []
        for each in inputs[:SAMPLES]:
            made, given = each.constructor_input, each.forward_input
            if given is None:
                continue
            module = info.module_cls(*made.args, **made.kwargs).train()
            state = [*module.parameters(), *module.buffers()]
            calls.append(
                (
                    lambda m=module, g=given: m(*g.args, **g.kwargs),
                    (given.args, given.kwargs, state),
                )
            )
        yield info.name, calls


def written(calls, folder) -> int:
    """Records the calls into the folder, a file each; torch's samples of errors are none."""
    count = 0
    for name, each in calls:
        for function, given in each:
            try:
                text = record(function, given)
            except (RuntimeError, NotImplementedError, AttributeError, KeyError, ValueError):
                continue  # of sparse or complex tensors; nothing is computed lazily
            (folder / f"{name.replace('/', '_')}.{count}.spmd.json").write_text(text)
            count += 1
    return count


def said_of(folder) -> dict[str, set[str]]:
    """By function: what the checker says of its samples, but for ops that need no row."""
    files = sorted(map(str, folder.iterdir()))
    # Numbers that a function makes for itself are declared by nobody.
    line = [judged.checker(), "check", "--permissive", "--no-fold", "--format=json"]
    done = subprocess.run(
        [*line, "--max-findings=100000", *files], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)
    assert all(one["read"] for one in found["inputs"])
    said: dict[str, set[str]] = collections.defaultdict(set)
    for one in found["findings"]:
        unknown = one["name"] == "unknown-op" and not needs_a_row(one["arguments"]["op"])
        if one["severity"] != "info" and not unknown:
            name = os.path.basename(files[one["input"]]).rsplit(".", 3)[0]
            said[name].add(one["message"])
    return said


@pytest.mark.parametrize("calls", [functions, modules])
def test_samples_are_right(calls, tmp_path):
    pytest.importorskip("expecttest", reason="torch's samples need it")
    torch.manual_seed(0)
    every = [one for at, one in enumerate(calls()) if at % STEP == 0]
    assert written(every, tmp_path) > len(every)
    said = said_of(tmp_path)
    assert not {name: words for name, words in said.items() if name not in SAID}
    names = {name for name, _ in every}
    assert not (ALL and [name for name in SAID if name in names and name not in said]), "right"
