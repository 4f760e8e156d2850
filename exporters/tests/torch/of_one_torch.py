"""Imported by test modules that compare with what one version of torch gives, such as traces and
decisions that the tree keeps: under another version they are skipped.
"""

import importlib.metadata
import pathlib
import re

import pytest

_LIST = pathlib.Path(__file__).parents[1] / "requirements-torch.txt"
_LISTED = re.search(r"^torch==(\S+)", _LIST.read_text(), re.MULTILINE)[1]

if importlib.metadata.version("torch").split("+")[0] != _LISTED:
    pytest.skip(f"it compares with what torch {_LISTED} gives", allow_module_level=True)
