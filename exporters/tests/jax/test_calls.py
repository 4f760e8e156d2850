"""Primitives as jaxprs print them, `dot_general[dimension_numbers=...] a b`: calls whose operands
have places and whose parameters have names. They are read as what the recorder writes.
"""

import json
import os
import pathlib

import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest

from spmd_trace.checker import output

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "jax"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.spmd.json"))

pytestmark = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)


def _as_call(op: dict) -> dict:
    """The same operation as a call."""
    plain = {key: value for key, value in op.items() if key not in ("in", "attrs")}
    return plain | {"args": op.get("in", []), "kwargs": op.get("attrs", {})}


@pytest.mark.parametrize("name", NAMES)
def test_calls_of_primitives(name, tmp_path):
    document = json.loads((EXAMPLES / name).read_text())
    # What communicates says so in words of ours.
    ours = {"src", "dst", "axis", "type", "partial"}
    calls = 0
    for body in [document, *document["functions"].values()]:
        for place, op in enumerate(body["ops"]):
            named = op.get("attrs", {})
            is_plain = not ours.intersection(named) and "regions" not in op
            if is_plain and not any(isinstance(value, dict) for value in named.values()):
                body["ops"][place] = _as_call(op)
                calls += 1
    assert calls > 5
    document |= {"version": "1.1", "requires": [*document.get("requires", []), "calls"]}
    written = tmp_path / name
    written.write_text(json.dumps(document))
    command = [os.environ["SPMDLINT"], "dump", "--stage=types"]
    of_calls = output([*command, written]).replace('version = "1.1", ', "", 1)
    assert of_calls == output([*command, EXAMPLES / name])
