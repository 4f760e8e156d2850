"""Records a step of a model that comes with a framework.

spmd-trace bundled megatron --sequence-parallel -o sp.spmd.json
spmd-trace bundled torchtitan --model llama3 --parallel tp_sp -o tp_sp.spmd.json
"""

import argparse
import pathlib


def _megatron(parser: argparse.ArgumentParser, options):
    from .programs import megatron_bugs, megatron_gpt

    if options.bug is not None and options.bug not in megatron_bugs.BUGS:
        parser.error(f"unknown bug {options.bug}: one of {', '.join(megatron_bugs.BUGS)}")
    experts = {"dropless": megatron_gpt.dropless, "capacity": megatron_gpt.with_capacity}
    if options.moe:
        config = experts[options.moe](layers=options.layers)
    else:
        sequence = options.sequence_parallel
        config = megatron_gpt.Config(sequence_parallel=sequence, layers=options.layers)
    return megatron_gpt.record(config, options.bug)


def _torchtitan(parser: argparse.ArgumentParser, options):
    from .programs import torchtitan_bugs, torchtitan_models

    if options.bug is not None and options.bug not in torchtitan_bugs.BUGS:
        parser.error(f"unknown bug {options.bug}: one of {', '.join(torchtitan_bugs.BUGS)}")
    grids = torchtitan_models.PARALLEL[options.model]
    parallel = options.parallel or next(iter(grids))
    if parallel not in grids:
        parser.error(f"{options.model} runs with --parallel {' or '.join(grids)}")
    config = torchtitan_models.Config(options.model, layers=options.layers, **grids[parallel])
    return torchtitan_models.record(config, options.bug).program


_PROGRAMS = {"megatron": _megatron, "torchtitan": _torchtitan}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", choices=list(_PROGRAMS), help="the program to record")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--bug", metavar="NAME", help="a mistake, see programs/*_bugs.py")
    megatron = parser.add_argument_group("megatron")
    megatron.add_argument("--sequence-parallel", action="store_true")
    megatron.add_argument(
        "--moe",
        nargs="?",
        const="dropless",
        choices=["dropless", "capacity"],
        help="experts in each layer; dropless: one on each rank of ep 4, capacity: two of ep 2",
    )
    torchtitan = parser.add_argument_group("torchtitan")
    torchtitan.add_argument("--model", choices=["llama3", "deepseek_v3"], default="llama3")
    torchtitan.add_argument("--parallel", metavar="GRID", help="tp, tp_sp, fsdp_tp_sp or fsdp_ep")


def run(parser: argparse.ArgumentParser, options) -> int:
    from . import dumps

    program = _PROGRAMS[options.program](parser, options)
    options.output.write_text(dumps(program), encoding="utf-8")
    print(f"{options.output}: {len(program.ops)} operations")
    return 0
