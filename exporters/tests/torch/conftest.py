"""Recordings of the real framework, made once for all tests."""

import json
import logging

import pytest

import spmd_trace.torch  # before torch: it says what to do without CUDA libraries
import torch
from spmd_trace.torch.programs import megatron_gpt


def pytest_configure(config):
    """Frameworks warn about the accelerators and fused kernels that a recording does without."""
    config.addinivalue_line("filterwarnings", "ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)  # tensors are small, and threads wait by spinning


def record_text(config: megatron_gpt.Config, bug: str | None = None) -> str:
    return spmd_trace.torch.dumps(megatron_gpt.record(config, bug))


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """The bundled traces of dense models, recorded again."""
    plain, sequence = megatron_gpt.Config(), megatron_gpt.Config(sequence_parallel=True)
    return {
        "tp.spmd.json": record_text(plain),
        "sp.spmd.json": record_text(sequence),
        "broken.spmd.json": record_text(plain, "bias-before-reduce"),
        "broken_norm.spmd.json": record_text(sequence, "missing-norm-flag"),
    }


@pytest.fixture(scope="session")
def moe_texts() -> dict[str, str]:
    """The bundled traces of mixtures of experts, recorded again."""
    dropless = megatron_gpt.dropless()
    return {
        "dropless.spmd.json": record_text(dropless),
        "capacity.spmd.json": record_text(megatron_gpt.with_capacity()),
        "broken_router.spmd.json": record_text(dropless, "router-flag"),
        "broken_gather.spmd.json": record_text(dropless, "expert-gather"),
    }


DENSE = ["tp.spmd.json", "sp.spmd.json", "broken.spmd.json"]


@pytest.fixture(scope="session", params=DENSE)
def dense(request, texts) -> dict:
    return json.loads(texts[request.param])


@pytest.fixture(scope="session", params=[*DENSE, "dropless.spmd.json", "capacity.spmd.json"])
def trace(request, texts, moe_texts) -> dict:
    return json.loads((texts | moe_texts)[request.param])


@pytest.fixture(scope="session")
def dropless(moe_texts) -> dict:
    return json.loads(moe_texts["dropless.spmd.json"])


@pytest.fixture(scope="session")
def capacity(moe_texts) -> dict:
    return json.loads(moe_texts["capacity.spmd.json"])


@pytest.fixture(scope="session")
def tp(texts) -> dict:
    return json.loads(texts["tp.spmd.json"])


@pytest.fixture(scope="session")
def sp(texts) -> dict:
    return json.loads(texts["sp.spmd.json"])
