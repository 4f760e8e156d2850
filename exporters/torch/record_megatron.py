"""Records the traces of examples/megatron_gpt or examples/megatron_moe again.

Takes the folder to write to; its name says which traces.
"""

import contextlib
import os
import pathlib
import sys

from spmd_trace import record

_TRACES = {
    "megatron_gpt": {
        "tp.spmd.json": [],
        "sp.spmd.json": ["--sequence-parallel"],
        "broken.spmd.json": ["--bug", "bias-before-reduce"],
        "broken_norm.spmd.json": ["--bug", "missing-norm-flag", "--sequence-parallel"],
    },
    "megatron_moe": {
        "dropless.spmd.json": ["--moe"],
        "capacity.spmd.json": ["--moe", "capacity"],
        "broken_router.spmd.json": ["--moe", "--bug", "router-flag"],
        "broken_gather.spmd.json": ["--moe", "--bug", "expert-gather"],
    },
}


def main() -> int:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else pathlib.Path()
    if folder.name not in _TRACES:
        names = " or ".join(_TRACES)
        print(f"usage: {os.path.basename(sys.argv[0])} FOLDER, named {names}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in _TRACES[folder.name].items():
        record.main(["megatron", "-o", str(folder / name), *options])
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
