"""The example in the README works as it stands."""

import json
import pathlib
import re

import of_one_jax  # noqa: F401  what is inferred is of one version

README = pathlib.Path(__file__).parents[2] / "spmd_trace" / "jax" / "README.md"


def test_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(code)
    exec(compile(code, str(script), "exec"), {"__name__": "__main__"})
    trace = json.loads((tmp_path / "mlp.spmd.json").read_text())
    assert trace["phase"] == "joint" and trace["functions"]
    assert "example.py" in [
        file if isinstance(file, str) else file["path"] for file in trace["files"]
    ]
