"""Eight devices of the CPU, for what JAX is asked to run; set before JAX starts."""

import os
import pathlib
import re

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax

_LIST = pathlib.Path(__file__).parents[1] / "requirements-jax.txt"
# What JAX infers about ranks, and what compares with it, is of one version.
if jax.__version__ != re.search(r"^jax==(\S+)", _LIST.read_text(), re.MULTILINE)[1]:
    collect_ignore_glob = ["test_[!os]*.py"]  # all but test_onedevice, test_script and test_sizes


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore")
    jax.config.update("jax_traceback_filtering", "off")  # thousands of refusals are caught
