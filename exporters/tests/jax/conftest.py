"""Eight devices of the CPU, for what JAX is asked to run; set before JAX starts."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore")
    jax.config.update("jax_traceback_filtering", "off")  # thousands of refusals are caught
