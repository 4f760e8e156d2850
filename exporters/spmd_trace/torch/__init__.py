"""Records a training program, run in one process on CPU tensors, as a trace for the checker.

`Recorder` watches every operation that torch executes inside `recording`, and `dumps` gives the
JSON document. What is particular to a framework lives in `spmd_trace.torch.frameworks`.
"""

from . import cuda_standins

cuda_standins.preload()

from .document import Program, dumps  # noqa: E402
from .communication.mesh import Axis, Mesh  # noqa: E402
from .recorder import Recorder  # noqa: E402
from .communication.transitions import reinterpret  # noqa: E402

__all__ = ["Axis", "Mesh", "Program", "Recorder", "dumps", "reinterpret"]
