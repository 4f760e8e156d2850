"""Recordings of the real framework, made once for all tests."""

import json
import logging

import pytest

import spmd_trace
from spmd_trace.programs import megatron_gpt


def pytest_configure(config):
    """Frameworks warn about the accelerators and fused kernels that a recording does without."""
    config.addinivalue_line("filterwarnings", "ignore")
    logging.disable(logging.WARNING)


def record_text(bug: str | None = None, **config) -> str:
    return spmd_trace.dumps(megatron_gpt.record(megatron_gpt.Config(**config), bug))


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """The bundled traces, recorded again."""
    return {
        "tp.spmd.json": record_text(),
        "sp.spmd.json": record_text(sequence_parallel=True),
        "broken.spmd.json": record_text("bias-before-reduce"),
        "broken_norm.spmd.json": record_text("missing-norm-flag", sequence_parallel=True),
    }


@pytest.fixture(scope="session", params=["tp.spmd.json", "sp.spmd.json", "broken.spmd.json"])
def trace(request, texts) -> dict:
    return json.loads(texts[request.param])


@pytest.fixture(scope="session")
def tp(texts) -> dict:
    return json.loads(texts["tp.spmd.json"])


@pytest.fixture(scope="session")
def sp(texts) -> dict:
    return json.loads(texts["sp.spmd.json"])
