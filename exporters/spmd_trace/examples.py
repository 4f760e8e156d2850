"""Records the traces of a folder of examples again; the name of the folder says which traces.

spmd-trace examples examples/megatron_gpt
"""

import argparse
import pathlib

from . import command

# How each trace of a folder is recorded by `spmd-trace bundled`; those of examples/jax are in
# jax.examples.
_BUNDLED = {
    "megatron_gpt": {
        "tp.spmd.json": ["megatron"],
        "sp.spmd.json": ["megatron", "--sequence-parallel"],
        "broken.spmd.json": ["megatron", "--bug", "bias-before-reduce"],
        "broken_norm.spmd.json": ["megatron", "--bug", "missing-norm-flag", "--sequence-parallel"],
    },
    "megatron_moe": {
        "dropless.spmd.json": ["megatron", "--moe"],
        "capacity.spmd.json": ["megatron", "--moe", "capacity"],
        "broken_router.spmd.json": ["megatron", "--moe", "--bug", "router-flag"],
        "broken_gather.spmd.json": ["megatron", "--moe", "--bug", "expert-gather"],
    },
    "torchtitan": {
        "llama3_tp.spmd.json": ["torchtitan", "--parallel", "tp"],
        "llama3_tp_sp.spmd.json": ["torchtitan", "--parallel", "tp_sp"],
        "llama3_fsdp_tp_sp.spmd.json": ["torchtitan", "--parallel", "fsdp_tp_sp"],
        "llama3_broken.spmd.json": ["torchtitan", "--parallel", "tp_sp", "--bug", "unsummed-norms"],
        "deepseek_v3_fsdp_ep.spmd.json": [
            *("torchtitan", "--model", "deepseek_v3", "--parallel", "fsdp_ep")
        ],
    },
}


def add_options(parser: argparse.ArgumentParser) -> None:
    names = ", ".join([*_BUNDLED, "jax"])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help=f"named {names}")


def run(parser: argparse.ArgumentParser, options) -> int:
    folder = options.folder
    if folder.name != "jax" and folder.name not in _BUNDLED:
        parser.error(
            f"{folder}: no such folder of examples; there are {', '.join(_BUNDLED)} and jax"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name == "jax":
        from .jax import examples

        for name, program in examples.TRACES.items():
            (folder / name).write_text(examples.text(*program), encoding="utf-8")
        return 0
    return max(
        command.main(["bundled", "-o", str(folder / name), *words])
        for name, words in _BUNDLED[folder.name].items()
    )
