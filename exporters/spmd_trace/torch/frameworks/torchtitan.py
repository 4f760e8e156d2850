"""torchtitan on the CPU, and its meshes, parameters and buffers in terms of types."""

import contextlib
import math

import spmd_types
import torch
from spmd_types import _mesh_axis
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.nn.attention.flex_attention import AuxOutput, create_block_mask

from ..communication.mesh import Axis, Mesh, axes_in
from ..communication.transitions import DUAL
from ..recorder import Recorder
from ..values import Value
from . import fsdp, standins, torchtitan_biases
from .cpu import replaced
from .spmd_types_words import Words

# Imported for data, logs and checkpoints, or as kernels for GPUs.
_PACKAGES = (
    "datasets",
    "einops",
    "PIL",
    "safetensors",
    "tensorboard",
    "tokenizers",
    "torch_checkpointing",
    "torchdata",
    "torchvision",
    "tyro",
    "wandb",
)
# The trainer is asked for its class only; the kernels need triton.
_MODULES = ("torchtitan.trainer", "torchtitan.distributed.minimal_async_ep")
# Operations of its own, and what they are like.
RULES = {"torchtitan.deterministic_scatter_add.default": {"like": "deterministic_scatter_add"}}


def _attention(q, k, v, *, scale, enable_gqa, return_aux=None, **options):
    """Flex attention without its compiler: the causal mask alone."""
    attend = torch.nn.functional.scaled_dot_product_attention
    if return_aux is None or not return_aux.lse:
        return attend(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa), AuxOutput()
    keys, values = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    result = attend(q, keys, values, is_causal=True, scale=scale)
    products = torch.bmm(q.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2)) * scale
    scores = products.float().view(*q.shape[:3], -1)
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return result, AuxOutput(lse=torch.logsumexp(scores.masked_fill(future, -torch.inf), -1))


def _balanced(router, scores):
    """Its routing for tests, tokens to experts in turn, with the type that the scores have."""
    shape = (*scores.shape[:2], router.top_k)
    with spmd_types.no_typecheck():
        experts = torch.arange(math.prod(shape)).reshape(shape) % router.num_experts
    spec = spmd_types.get_partition_spec(scores)
    spmd_types.assert_type(experts, spmd_types.get_local_type(scores), spec)
    return experts, scores.gather(dim=-1, index=experts)


def _forget_meshes() -> None:
    """Empties the tables that keep meshes of groups that are gone, and equal to new ones."""
    _clear_sharding_prop_cache()
    _mesh_axis._reset()


@contextlib.contextmanager
def on_cpu():
    """Imports torchtitan for the CPU, with stand-ins for what a step does not use."""
    _forget_meshes()
    with standins.installed(_PACKAGES, _MODULES):
        from torchtitan.tools import utils

        cpu = {"device_type": "cpu", "device_module": torch.cpu}
        with replaced(utils, **cpu, get_device_info=lambda: ("cpu", torch.cpu)):
            import torchtitan.models.deepseek_v3  # noqa: F401
            import torchtitan.models.gpt_oss  # noqa: F401
            import torchtitan.models.llama3  # noqa: F401
            from torchtitan.distributed.utils import get_spmd_backend, set_spmd_backend
            from torchtitan.models.common import attention, moe

            backend = get_spmd_backend()
            kernels = {"_compiled_create_block_mask": create_block_mask}
            threads = torch.autograd.is_multithreading_enabled()
            set_spmd_backend("spmd_types")
            torch.autograd.set_multithreading_enabled(False)
            flex, router = attention.FlexAttention, moe.TokenChoiceTopKRouter
            try:
                with (
                    replaced(attention, **kernels),
                    replaced(flex, _compiled_flex_attn=staticmethod(_attention)),
                    replaced(router, _debug_force_load_balance_routing=_balanced),
                    torchtitan_biases.stated(),
                ):
                    yield
            finally:
                set_spmd_backend(backend)
                torch.autograd.set_multithreading_enabled(threads)


def meshes(parallel_dims) -> list[Mesh]:
    """The meshes that the forward pass computes on: dense, and sparse where there are experts."""
    found = [("dense", parallel_dims.spmd_dense_mesh())]
    if parallel_dims.spmd_sparse_mesh() is not None:
        found.append(("sparse", parallel_dims.spmd_sparse_mesh()))
    return [Mesh(name, [_axis(mesh, axis) for axis in mesh.mesh_dim_names]) for name, mesh in found]


def _axis(mesh, name: str) -> Axis:
    ranks = torch.distributed.get_process_group_ranks(mesh.get_group(name))
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    return Axis(name, len(ranks), stride)


def declare_model(recorder: Recorder, words: Words, model: torch.nn.Module, state: dict) -> dict:
    """Declares parameters, buffers and optimizer state; returns the values of the parameters."""
    known = fsdp.sharded_parameters(model)
    declared = {}
    for name, parameter in model.named_parameters():
        claims = _parameter_claims(words, known[parameter])
        shard = fsdp.local_shard(parameter)
        declared[parameter] = recorder.declare(shard, "param", name, **claims)
    for name, buffer in model.named_buffers():
        claims = words.type_of(buffer) if spmd_types.has_local_type(buffer) else {}
        recorder.declare(buffer, "buffer", name, **claims)
    for parameter, value in declared.items():
        for key, tensor in state[parameter].items():
            claims = _type_claims(value) if tensor.dim() else _everywhere_equal(value)
            name = f"{value.claims['name']}.{key}"
            recorder.declare(fsdp.local_shard(tensor), "opt_state", name, **claims)
    return declared


def _type_claims(value: Value) -> dict:
    return {key: value.claims[key] for key in ("type", "spec", "mesh") if key in value.claims}


def _everywhere_equal(value: Value) -> dict:
    claims = _type_claims(value)
    del claims["spec"]
    return claims | {"type": dict.fromkeys(claims["type"], "R")}


def leave_backward(recorder: Recorder, declared: dict) -> None:
    """States how gradients are cut when they leave the backward, as their parameters promise."""
    for parameter, value in declared.items():
        gradient, spec = fsdp.local_shard(parameter.grad), value.claims["grad"]["step"]["spec"]
        axes = [axis for entry in spec for axis in axes_in(entry)]
        if axes:
            meshes = recorder.program.meshes
            mesh = next(m for m in meshes if value.mesh in (None, m.name))
            words = {"type": dict.fromkeys(axes, "V"), "spec": spec}
            with replaced(recorder, context=lambda op, mesh=mesh: mesh.context(local=False)):
                recorder.emit("from_local_", [gradient], [gradient], words, mut=[0])


def declare_outputs(recorder: Recorder, declared: dict, state: dict) -> None:
    """The reduced gradients, the new parameters and the new optimizer state."""
    for parameter, value in declared.items():
        gradient, name = fsdp.local_shard(parameter.grad), value.claims["name"]
        recorder.output(gradient, "grad", value, name=name, **_output_claims(value))
    for parameter, value in declared.items():
        shards = [parameter, *state[parameter].values()]
        for shard in map(fsdp.local_shard, shards):
            old = recorder.declared_value(shard)
            name = old.claims["name"]
            recorder.output(shard, "state", old, name=name, **_output_claims(old))


def _output_claims(value: Value) -> dict:
    return {key: value.claims[key] for key in ("type", "spec") if key in value.claims}


def _data_axis(known) -> spmd_types.MeshAxis:
    return spmd_types.MeshAxis.of(known.mesh_info.shard_process_group)


def _parameter_claims(words: Words, known) -> dict:
    """The type of the piece of a parameter that a rank keeps."""
    kinds = dict(known._spmd_restore_type)
    mesh = words.mesh_with(kinds)
    spec = known._spmd_partition_spec
    entries = [
        list(entry) if isinstance(entry, tuple) else [] if entry is None else [entry]
        for entry in (spec if spec is not None else [None] * len(known._orig_size))
    ]
    if (axis := _data_axis(known)).size() > 1:
        kinds[axis] = spmd_types.V
        entries[known.fsdp_placement.dim].append(axis)
    with words.on(mesh):
        step = {"type": words.kinds(kinds), "spec": words.spec([tuple(e) for e in entries])}
    dual = {axis: DUAL[kind] for axis, kind in step["type"].items()}
    claims = step | {"grad": {"type": dual, "spec": step["spec"], "step": step}}
    claims["x_placements"] = _placements(known)
    return claims if mesh is words.recorder.program.mesh else claims | {"mesh": mesh.name}


def _placements(known) -> dict:
    """What the contract follows from: the types of spmd_types, and the placements of FSDP2."""
    kinds = {str(axis): str(kind) for axis, kind in known._spmd_restore_type.items()}
    placements = [str(placement) for placement in known._sharding_spec.placements]
    return {"spmd_types": kinds, "spec": str(known._spmd_partition_spec), "fsdp": placements}


def gathered_where(words: Words) -> fsdp.Where:
    """The data axis of a parameter, and the context of the mesh that it is typed on."""

    def where(known):
        mesh = words.mesh_with(known._spmd_restore_type)
        with words.on(mesh):
            return words.axis(_data_axis(known)), mesh.context(local=False)

    return where
