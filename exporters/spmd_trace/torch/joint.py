"""Graphs with their backward: joint graphs of AOTAutograd and of torch.export.

A graph says in one of four ways what its results are: by the signature of an exported program, by
the signature that `aot_export_module` gives beside the graph, by the descriptions that AOTAutograd
notes in its nodes, or by the names that it gives to placeholders (`primals_1`, `tangents_1`) and
the order of results: a gradient for each primal stands behind those of the forward.
"""

import dataclasses

import torch.fx


@dataclasses.dataclass
class Joint:
    """Which nodes of a graph are losses, gradients and what a backward begins with."""

    outputs: list[torch.fx.Node | None]  # of the forward
    losses: set[torch.fx.Node]
    gradients: dict[torch.fx.Node, torch.fx.Node]  # by gradient: the placeholder
    tangents: dict[torch.fx.Node, torch.fx.Node]  # by placeholder: the output of the forward

    def backward(self, graph: torch.fx.Graph) -> set[torch.fx.Node]:
        """The nodes of the backward: from the first on that uses what a backward begins with."""
        begins = self.losses | self.tangents.keys()
        found: set[torch.fx.Node] = set()
        for node in graph.nodes:
            if node.op not in ("placeholder", "get_attr", "output"):
                marked = node.meta.get("partitioner_tag") == "is_backward"
                if found or marked or begins & set(node.all_input_nodes):
                    found.add(node)
        return found


def _results(graph: torch.fx.Graph) -> list:
    """What the graph returns, as a list."""
    (node,) = [node for node in graph.nodes if node.op == "output"]
    result = node.args[0]
    if isinstance(result, torch.fx.Node) and result.op == "call_function":
        if getattr(result.target, "__name__", "") == "tree_unflatten":
            result = result.args[0]
    flat: list = []
    for one in result if isinstance(result, (list, tuple)) else [result]:
        flat += one if isinstance(one, (list, tuple)) else [one]
    return flat


def read(graph: torch.fx.Graph, signature=None) -> Joint | None:
    """What is said of a graph; None if it has no backward. `signature`: of torch.export."""
    inputs = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    results = _results(graph)
    if hasattr(signature, "output_specs"):
        return _exported(signature, inputs, results)
    if signature is not None:
        return _beside(signature, inputs, results)
    (output,) = [node for node in graph.nodes if node.op == "output"]
    if any(_gradient_of(one) is not None for one in output.meta.get("desc") or ()):
        return _described(output.meta["desc"], inputs, results)
    return _named(inputs, results)


def _of(outputs: list, losses, gradients: dict, tangents: dict) -> Joint:
    return Joint(outputs, {one for one in losses if one is not None}, gradients, tangents)


def _exported(signature, inputs: dict, results: list) -> Joint | None:
    """Of `_export_forward_backward`."""
    names = {one.target: one.arg.name for one in signature.input_specs if one.target is not None}
    outputs, losses, gradients = [], [], {}
    for spec, node in zip(signature.output_specs, results):
        kind = spec.kind.name
        if kind.startswith("GRADIENT_TO_"):
            gradients[node] = inputs[names.get(spec.target, spec.target)]
        else:
            outputs.append(node)
            losses += [node] if kind == "LOSS_OUTPUT" else []
    return _of(outputs, losses, gradients, {}) if gradients else None


def _beside(signature, inputs: dict, results: list) -> Joint | None:
    """Of `aot_export_module(..., trace_joint=True)`."""
    backward = signature.backward_signature
    if backward is None:
        return None
    inputs_of = {name: of for of, name in signature.inputs_to_parameters.items()}
    whose = {n: inputs_of[of] for n, of in backward.gradients_to_parameters.items()}
    whose |= backward.gradients_to_user_inputs
    by_name = {node.name: node for node in results if node is not None}
    gradients = {by_name[name]: inputs[of] for name, of in whose.items()}
    outputs = [node for node in results if node not in gradients]
    return _of(outputs, [by_name.get(backward.loss_output)], gradients, {})


def _gradient_of(description):
    return getattr(description, "grad_of", None)


def _described(words: list, inputs: dict, results: list) -> Joint:
    """Of AOTAutograd since it describes what goes in and comes out."""
    described = {node.meta.get("desc"): node for node in inputs.values()}
    forward = {one: node for one, node in zip(words, results) if one and not _gradient_of(one)}
    gradients = {
        node: described[_gradient_of(one)]
        for one, node in zip(words, results)
        if node is not None and _gradient_of(one) in described
    }
    tangents = {
        node: forward[one.output]
        for one, node in described.items()
        if getattr(one, "output", None) in forward
    }
    return _of([node for node in forward.values() if node is not None], [], gradients, tangents)


def _named(inputs: dict, results: list) -> Joint | None:
    """Of AOTAutograd by the names and the order."""
    primals = [node for name, node in inputs.items() if name.startswith("primals_")]
    tangents = [node for name, node in inputs.items() if name.startswith("tangents_")]
    if not primals or not tangents:
        return None
    count = len(results) - len(primals)
    if count < 0 or len(tangents) > count:
        raise NotImplementedError(
            f"a joint graph of {len(primals)} primals and {len(tangents)} tangents gives "
            f"{len(results)} results: which are gradients is not known"
        )
    outputs, behind = results[:count], results[count:]
    if len(tangents) < count:
        raise NotImplementedError(
            f"{len(tangents)} of {count} results of the forward have gradients, and the graph "
            "does not say which"
        )
    gradients = {node: primal for primal, node in zip(primals, behind) if node is not None}
    return _of(outputs, [], gradients, dict(zip(tangents, outputs)))
