"""Records the traces of examples/torchtitan again; takes the folder to write to."""

import contextlib
import os
import pathlib
import sys

from spmd_trace import record

_TRACES = {
    "llama3_tp.spmd.json": ["--model", "llama3", "--parallel", "tp"],
    "llama3_tp_sp.spmd.json": ["--model", "llama3", "--parallel", "tp_sp"],
    "llama3_fsdp_tp_sp.spmd.json": ["--model", "llama3", "--parallel", "fsdp_tp_sp"],
    "llama3_broken.spmd.json": ["--parallel", "tp_sp", "--bug", "unsummed-norms"],
    "deepseek_v3_fsdp_ep.spmd.json": ["--model", "deepseek_v3", "--parallel", "fsdp_ep"],
}


def main() -> int:
    if len(sys.argv) != 2:
        print(f"usage: {os.path.basename(sys.argv[0])} FOLDER", file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in _TRACES.items():
        record.main(["torchtitan", "-o", str(folder / name), *options])
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
