"""Records the traces of examples/megatron_gpt again; takes the folder to write to."""

import contextlib
import os
import pathlib
import sys

from spmd_trace import record

_TRACES = {
    "tp.spmd.json": [],
    "sp.spmd.json": ["--sequence-parallel"],
    "broken.spmd.json": ["--bug", "bias-before-reduce"],
    "broken_norm.spmd.json": ["--bug", "missing-norm-flag", "--sequence-parallel"],
}


def main() -> int:
    if len(sys.argv) != 2:
        print(f"usage: {os.path.basename(sys.argv[0])} FOLDER", file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in _TRACES.items():
        record.main(["megatron", "-o", str(folder / name), *options])
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
