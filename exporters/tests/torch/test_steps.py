"""Which step of a script is recorded."""

from spmd_trace.torch.script.step import Steps
from spmd_trace.torch.script.world import Job, Seen


def test_a_step_has_the_updates_of_all_optimizers():
    """What a generator does after the first update of its discriminator is still the first step."""
    steps = Steps(Job(2, 1), Seen(), 2, lambda recorder: None, {})
    discriminator, generator = object(), object()
    steps._held = {discriminator, generator}
    steps.counts = {discriminator: 1}
    assert steps.taken == 0 and not steps.between
    steps.counts = {discriminator: 1, generator: 1}
    assert steps.taken == 1 and steps.between


def test_an_optimizer_that_the_script_does_not_use_is_not_waited_for():
    steps = Steps(Job(2, 1), Seen(), 2, lambda recorder: None, {})
    used = object()
    steps._held, steps.counts = {used, object()}, {used: 2}
    assert steps.taken == 2 and steps.between
