"""Records training programs as traces for a static type checker, without a GPU.

`spmd_trace.torch` records what PyTorch executes, `spmd_trace.jax` what JAX traces. Neither
framework is imported before one of these is, and a machine needs only the one that it uses.

In a notebook or a test, `job` and `step` record a step of PyTorch without a script:

    with spmd_trace.job(ranks=4):
        model, optimizer = build()
        with spmd_trace.step("step.spmd.json") as step:
            train(model, optimizer)
    print(step.report())
"""

__version__ = "0.1.0"


def job(ranks: int = 8, rank: int = 0):
    """A context: the process simulates one of so many ranks (`spmd_trace.torch.script.block`)."""
    from .torch.script import block

    return block.job(ranks, rank)


def step(file=None, model=None, kinds=None, data=()):
    """A context, or a decorator: what runs inside is recorded (`spmd_trace.torch.script.block`)."""
    from .torch.script import block

    return block.Step(file, model, kinds, data)


def import_graph(graph, mesh, types=None, groups=None, inputs=None) -> dict:
    """The trace of a graph of torch.fx or torch.export (`spmd_trace.torch.graphs`)."""
    from .torch import graphs

    return graphs.import_graph(graph, mesh, types, groups, inputs)
