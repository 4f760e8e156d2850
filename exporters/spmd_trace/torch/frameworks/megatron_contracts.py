"""What Megatron-Core's parameters promise: their types, and who reduces their gradients.

The framework has no types. What it does with a gradient follows from attributes of the parameter,
from the configuration of the model and from that of the data-parallel wrapper; the same facts are
read here. Where an attribute is wrong, the type is as wrong as the training, and does not fit what
the program computes.
"""

import dataclasses
import math

import torch

from ..communication.mesh import Mesh, spec_of
from ..communication.transitions import DUAL

ATTRIBUTES = (
    "tensor_model_parallel",
    "partition_dim",
    "sequence_parallel",
    "average_gradients_across_tp_domain",
    "allreduce",
    "shared",
    "shared_embedding",
)


def _is_expert(parameter: torch.nn.Parameter) -> bool:
    return not getattr(parameter, "allreduce", True)


@dataclasses.dataclass(frozen=True)
class Reduction:
    """One reduction of a gradient between backward and the optimizer, and why it is there."""

    axis: str
    op: str
    origin: str

    def json(self) -> dict:
        return dataclasses.asdict(self)


class Contracts:
    """The contracts of the parameters of one wrapped model."""

    def __init__(self, ddp, mesh: Mesh):
        self.model, self.wrapper, self.mesh = ddp.config, ddp.ddp_config, mesh

    def reductions(self, name: str, parameter: torch.nn.Parameter) -> list[Reduction]:
        """What the wrapper and the finaliser do to the gradient, in their order."""
        found = [self._of_replicas(parameter)]
        if self.mesh.axis("tp").size > 1 and (shared := self._of_tensor_ranks(name, parameter)):
            found.append(shared)
        if self.mesh.has("pp") and (shared := self._of_stages(parameter)):
            found.append(shared)
        return found

    def _of_replicas(self, parameter: torch.nn.Parameter) -> Reduction:
        axis = "edp" if _is_expert(parameter) and self.mesh.has("edp") else "dp"
        axis = "dp_cp" if axis == "dp" and self.mesh.has("cp") else axis
        if self.model.calculate_per_token_loss:
            return Reduction(axis, "sum", "DistributedDataParallel, calculate_per_token_loss")
        how = "average_in_collective" if self.wrapper.average_in_collective else "scaled before"
        return Reduction(axis, "avg", f"DistributedDataParallel, {how}")

    def _of_tensor_ranks(self, name: str, parameter: torch.nn.Parameter) -> Reduction | None:
        """As `finalize_model_grads` chooses."""
        if getattr(parameter, "average_gradients_across_tp_domain", False):
            return Reduction("tp", "avg", "average_gradients_across_tp_domain")
        if self.model.sequence_parallel and getattr(parameter, "sequence_parallel", False):
            return Reduction("tp", "sum", "sequence_parallel")
        norms = ("q_layernorm", "k_layernorm")
        if self.model.qk_layernorm and any(norm in name for norm in norms):
            return Reduction("tp", "sum", "qk_layernorm")
        return None

    def _of_stages(self, parameter: torch.nn.Parameter) -> Reduction | None:
        """As `finalize_model_grads` chooses for weights that the first and last stage share."""
        if getattr(parameter, "shared_embedding", False):
            return Reduction("pp", "sum", "shared_embedding")
        return None

    def hints(self, name: str, parameter: torch.nn.Parameter) -> list[dict]:
        """How `finalize_model_grads` would be brought to reduce a gradient that it does not."""
        whole = not getattr(parameter, "tensor_model_parallel", False)
        summed = self._of_tensor_ranks(name, parameter)
        if not (whole and self.model.sequence_parallel and summed is None):
            return []
        where = "where the parameter has `sequence_parallel` set"
        return [{"axis": "tp", "text": f"finalize_model_grads sums it over tp {where}"}]

    def tensor_kind(self, name: str, parameter) -> tuple[str, int | None]:
        """The kind of a parameter on tp, and the dimension that is cut.

        Only a gradient that is summed is partial; the mean is for gradients that are equal.
        """
        if getattr(parameter, "tensor_model_parallel", False):
            dim = getattr(parameter, "partition_dim", -1)
            return "V", dim if dim >= 0 else None
        reduction = self._of_tensor_ranks(name, parameter)
        return ("R" if reduction and reduction.op == "sum" else "I"), None

    def claims(self, name: str, parameter: torch.nn.Parameter) -> dict:
        """Type, global shape and gradient contract of a parameter, and what they follow from."""
        kind, dim = self.tensor_kind(name, parameter)
        stages = "R" if self._of_stages(parameter) else "V"
        kinds = self.mesh.kinds(pp=stages, dp="R", cp="R", tp=kind)
        cuts: list[list[str]] = [[] for _ in range(parameter.dim())]
        if dim is not None:
            cuts[dim].append("tp")
        if _is_expert(parameter):
            # Each rank has other experts: together they are one tensor, one below the other.
            kinds |= self.mesh.kinds(ep="V")
            experts = self.mesh.pieces("ep")
            if "tp" in experts:
                cuts = [[] for _ in cuts]
            cuts[0][:0] = experts
        claims: dict = {"type": kinds}
        spec = spec_of(cuts)
        if any(cuts):
            sizes = [math.prod(self.mesh.axis(a).size for a in axes) for axes in cuts]
            shape = [extent * size for extent, size in zip(parameter.shape, sizes)]
            claims |= {"gshape": shape, "spec": spec}
        gradient = {"type": {axis: DUAL[kind] for axis, kind in kinds.items()}}
        step = {"type": kinds}
        if any(cuts):
            gradient["spec"] = step["spec"] = spec
        hints = self.hints(name, parameter) if self.mesh.axis("tp").size > 1 else []
        flags = {a: getattr(parameter, a) for a in ATTRIBUTES if hasattr(parameter, a)}
        return claims | {
            "grad": gradient | {"step": step} | ({"hints": hints} if hints else {}),
            "x_attributes": flags,
            "x_reductions": [r.json() for r in self.reductions(name, parameter)],
        }
