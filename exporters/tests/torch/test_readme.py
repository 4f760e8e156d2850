"""The example in the README works as it stands."""

import json
import pathlib
import re

import jsonschema

from traces import schema

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(code)
    exec(compile(code, str(script), "exec"), {"__name__": "__main__"})
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    jsonschema.Draft202012Validator(schema()).validate(trace)
    assert trace["phase"] == "joint" and trace["scopes"] == ["Linear"]
    assert [file["path"] for file in trace["files"]] == ["example.py"]
