"""A fixture for test suites: a test simulates one rank of a job, and records a step of it.

def test_the_step_has_no_findings(spmd_job):
    spmd_job(ranks=4)
    model = DistributedDataParallel(build())
    with spmd_trace.step() as step:
        train(model)
    assert step.findings() == []
"""

import contextlib

import pytest


@pytest.fixture
def spmd_job():
    """Begins a job, which ends with the test: `spmd_job(ranks=4, rank=0)`."""
    import spmd_trace

    with contextlib.ExitStack() as stack:
        yield lambda **words: stack.enter_context(spmd_trace.job(**words))
