"""Records training programs as traces for a static type checker, without a GPU.

`spmd_trace.torch` records what PyTorch executes, `spmd_trace.jax` what JAX traces. Neither framework
is imported before one of these is, and a machine needs only the one that it uses.
"""

__version__ = "0.1.0"
