"""The wheel of everything and the package of the recorders say the same of what they share."""

import tomllib

from conftest import ROOT


def test_projects_agree():
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recorders = tomllib.loads((ROOT / "exporters/pyproject.toml").read_text())["project"]
    for key in ("requires-python", "scripts", "entry-points"):
        assert whole[key] == recorders[key], key
    own = {
        name: [each for each in packages if not each.startswith(recorders["name"] + "[")]
        for name, packages in recorders["optional-dependencies"].items()
        if name != "test"
    }
    assert whole["optional-dependencies"] == own
