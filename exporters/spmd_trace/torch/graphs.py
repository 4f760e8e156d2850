"""Makes a trace of a graph: an archive of torch.export, or a GraphModule of torch.fx, with or
without its backward."""

import argparse
import fnmatch
import math
import operator
import pathlib
import pickle
import re
import zipfile

import torch
import torch.export
import torch.fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from .. import document, locations
from . import joint
from .communication import collectives
from .values import DTYPES

_ONES = (torch.ops.aten.ones_like.default, torch.ops.aten.full_like.default)
_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


class _Everything(torch.fx.Tracer):
    """Follows the program into modules of torch."""

    def is_leaf_module(self, module, name) -> bool:
        return False


class _Graph:
    """The values of one graph, in the order in which they are made."""

    def __init__(self, graph: torch.fx.Graph, owner, mesh: dict, types: dict, groups: dict):
        self.graph, self.owner = graph, owner
        self.joint: joint.Joint | None = None  # if it has a backward
        self._backward: set[torch.fx.Node] = set()
        self.sync: dict[str, str] = {}  # by axis: how gradients are reduced outside of the graph
        self._forward: dict[int, object] = {}  # by autograd's number: a result of the forward
        self.mesh, self.types, self.groups = mesh, types, groups
        self.tables = locations.Tables()
        self.names: dict[torch.fx.Node, object] = {}  # a value, or those of several results
        self.values = 0
        self.symbols: dict[str, dict] = {}
        self.params: list[dict] = []
        self.ops: list[dict] = []
        self.outputs: list[dict] = []
        self.unused = set(types)  # patterns of types that nothing has had

    def _id(self) -> str:
        self.values += 1
        return f"%{self.values - 1}"

    # Values.

    def extent(self, size):
        if isinstance(size, int):
            return size
        expression = size.node.expr
        for symbol in expression.free_symbols:
            known = size.node.shape_env.var_to_range.get(symbol) if size.node.shape_env else None
            least = int(known.lower) if known is not None and known.lower.is_finite else 0
            self.symbols.setdefault(str(symbol), {"min": max(least, 0)})
        return str(expression).replace("//", "/")

    def described(self, tensor) -> dict:
        """What a result is, as far as the graph knows its shape."""
        entry = {"id": self._id()}
        if isinstance(tensor, torch.Tensor):
            entry |= {
                "dtype": DTYPES[tensor.dtype],
                "shape": [self.extent(n) for n in tensor.shape],
            }
        return entry

    def declare(self, node, role: str, name: str, value) -> None:
        entry = self.described(value) | {"role": role, "name": name}
        kinds = dict.fromkeys(self.mesh, "?")
        for pattern, stated in self.types.items():
            if fnmatch.fnmatchcase(name, pattern):
                kinds |= stated
                self.unused.discard(pattern)
        self.names[node] = entry["id"]
        self.params.append(entry | {"type": kinds})

    # Calls.

    def argument(self, item):
        if isinstance(item, torch.fx.Node):
            known = self.names.get(item)
            value = item.meta.get("val")
            if known is None and isinstance(value, torch.SymInt):
                return {"sym": self.extent(value)}
            if known is None:
                raise NotImplementedError(
                    f"{item.name} is no tensor: its use as an argument is not read"
                )
            return known
        if isinstance(item, (list, tuple)):
            return [self.argument(one) for one in item]
        if isinstance(item, torch.SymInt):
            return {"sym": self.extent(item)}
        if isinstance(item, _WORDS):
            return str(item)
        if item is None or isinstance(item, (bool, int, float, str)):
            return document.number(item)
        raise NotImplementedError(f"an argument of {type(item).__name__} has no form in a trace")

    def call(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem and isinstance(self.names.get(node.args[0]), list):
            self.names[node] = self.names[node.args[0]][node.args[1]]
            return
        value = node.meta.get("val", node.meta.get("example_value"))
        if isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return  # numbers of the host: where one is an argument, it stands there
        if (
            isinstance(node.target, torch._ops.OpOverload)
            and node.target.namespace == "_c10d_functional"
        ):
            entry = self._collective(node)
        else:
            args, kwargs = (
                self.argument(node.args),
                {k: self.argument(v) for k, v in node.kwargs.items()},
            )
            entry = {"op": _name_of(node), "args": args} | ({"kwargs": kwargs} if kwargs else {})
        several = isinstance(value, (list, tuple))
        made = [self.described(one) for one in (value if several else [value])]
        self._written(node, made)
        self.names[node] = [one["id"] for one in made] if several else made[0]["id"]
        self.ops.append(entry | {"out": made} | self._paired(node, made) | self._place(node))
        if self.joint is not None and node in self.joint.losses:
            self._loss(node)

    def _paired(self, node, made: list[dict]) -> dict:
        """What belongs to the backward, and to which operation of the forward, where autograd's
        numbers say so."""
        if self.joint is None:
            return {}
        number = node.meta.get("seq_nr")
        if node not in self._backward:
            self._forward[number] = made[0]["id"]
            return {}
        if (primal := self.joint.gradients.get(node)) is not None:
            made[0]["grad_of"] = self.names[primal]
        for loss in self.joint.losses & set(node.all_input_nodes):
            if node.target in _ONES:
                made[0]["grad_of"] = self.names[loss]
        of = self._forward.get(number) if number is not None else None
        return {"phase": "bwd"} | ({"bwd_of": of} if of is not None else {})

    def _loss(self, node) -> None:
        """Where ranks have batches of their own the loss is a sum over them, if that is said."""
        for axis, kind in self.types.get("loss", {}).items():
            self.unused.discard("loss")
            if kind != "P":
                raise ValueError(
                    f"loss:{axis}={kind}: a loss is the sum over an axis (P), or equal"
                )
            value = self.described(node.meta.get("val")) | {"alias_of": self.names[node]}
            attrs = {"axis": axis, "src": "V", "dst": "P"}
            entry = {"op": "reinterpret", "in": [self.names[node]], "attrs": attrs}
            self.ops.append(entry | {"out": [value]} | self._place(node))
            self.names[node] = value["id"]

    def _written(self, node, made: list[dict]) -> None:
        """What is written in place goes on under the name of the result."""
        schema = getattr(node.target, "_schema", None)
        named = node.op == "call_method" and node.target.endswith("_") and node.target[-2:] != "__"
        marked = (
            [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
            if schema
            else []
        )
        if (named or any(marked[:1])) and isinstance(node.args[0], torch.fx.Node):
            made[0]["alias_of"] = self.names[node.args[0]]
            self.names[node.args[0]] = made[0]["id"]

    def _collective(self, node) -> dict:
        """A functional collective; waiting for it is no operation of its own."""
        given = dict(zip([a.name for a in node.target._schema.arguments], node.args)) | node.kwargs
        name = node.target._schema.name.split("::")[1]
        if name == "wait_tensor":
            return {"op": "_c10d_functional.wait_tensor", "in": [self.argument(given["tensor"])]}
        if name not in collectives._FUNCTIONAL:
            raise NotImplementedError(f"the collective {node.target} is not read from a graph")
        word, attrs = collectives._FUNCTIONAL[name]
        group = str(given["group_name"])
        if group not in self.groups:
            raise NotImplementedError(
                f"the axis of group {group} is not known: --group {group}=AXIS"
            )
        axes = self.groups[group]
        attrs = {"axis": axes if len(axes) > 1 else axes[0]} | attrs
        if "reduce_op" in given:
            attrs["op"] = given["reduce_op"].lower().replace("product", "prod")
        return {"op": word, "in": [self.argument(given["input"])], "attrs": attrs}

    def _place(self, node) -> dict:
        """The line of the program, and the module."""
        entry: dict = {}
        frames = [f for f in _FRAME.findall(node.meta.get("stack_trace") or "")
                  if not f[0].startswith(locations.SITE)]  # fmt: skip
        if frames:
            path, line, function = frames[-1]
            known = self.tables.known(frames[-1])
            added = {"line": int(line), "col": 1}
            entry["loc"] = known if known is not None else self.tables.add(
                frames[-1], path, added, function, None)  # fmt: skip
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        scope = self.tables.scope_named(str(stack[-1][0]) if stack else None)
        return entry | ({"scope": scope} if scope is not None else {})

    def read(self, inputs: dict) -> None:
        """`inputs`: role and name of each placeholder."""
        self._backward = self.joint.backward(self.graph) if self.joint is not None else set()
        for node in self.graph.nodes:
            if node.op == "placeholder":
                role, name = inputs.get(node.name, ("input", node.target))
                if role is not None:
                    self.declare(node, role, name, node.meta.get("val"))
            elif node.op == "get_attr":
                self._attribute(node)
            elif node.op == "output":
                self._end(node.args[0])
            else:
                self.call(node)

    def _attribute(self, node) -> None:
        found = operator.attrgetter(node.target)(self.owner)
        if not isinstance(found, torch.Tensor):
            raise NotImplementedError(f"the graph has another graph in it: {node.target}")
        role = "param" if isinstance(found, torch.nn.Parameter) else "buffer"
        self.declare(node, role, node.target, found)

    def _end(self, results) -> None:
        nodes = results if isinstance(results, (list, tuple)) else [results]
        for node in nodes:
            if isinstance(node, torch.fx.Node) and isinstance(self.names.get(node), str):
                self.outputs.append({"value": self.names[node]} | self._role(node))
        if self.joint is None:
            return
        declared = {one["id"]: one for one in self.params}
        for tangent, of in self.joint.tangents.items():
            declared[self.names[tangent]]["grad_of"] = self.names[of]
        for primal in self.joint.gradients.values():
            entry = declared[self.names[primal]]
            summed = [axis for axis in self.sync if entry["type"].get(axis) == "R"]
            if summed:
                entry["grad"] = {"sync": [{"axis": one, "op": self.sync[one]} for one in summed]}

    def _role(self, node) -> dict:
        if self.joint is None:
            return {"role": "output"}
        if (primal := self.joint.gradients.get(node)) is not None:
            return {"role": "grad", "of": self.names[primal]}
        return {"role": "loss" if node in self.joint.losses else "output"}

    def trace(self, frontend: str) -> dict:
        sizes = list(self.mesh.values())
        axes = [{"name": name, "size": size} for name, size in self.mesh.items()]
        version = torch.__version__.split("+")[0]
        return document.head(f"torch {version}", frontend) | {
            "version": "1.1",
            "mode": "local",
            "phase": "forward" if self.joint is None else "joint",
            "requires": ["calls"],
            # A graph does not say which of its values are views of each other.
            "missing": ["mutation"],
            "world": math.prod(sizes),
            "op_count": len(self.ops),
            **({"symbols": self.symbols} if self.symbols else {}),
            "meshes": [{"id": "main", "axes": axes}],
            **self.tables.json(),
            **({} if self.joint is None else {"contexts": [self._context()]}),
            "params": self.params,
            "outputs": self.outputs,
            "ops": self.ops,
        }

    def _context(self) -> dict:
        """Of a graph with its backward, which nothing differentiates: its gradients are judged."""
        return {"mesh": "main", "local": list(self.mesh), "grad": False}


def _name_of(node) -> str:
    if node.op == "call_method":
        return f"torch.Tensor.{node.target}"
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    name = node.target.__name__
    module = (getattr(node.target, "__module__", None) or "torch").removeprefix("_")
    # Functions that are written in C say nothing of where they stand.
    for place in (torch, torch.nn.functional, torch.special, torch.linalg, torch.fft):
        if getattr(place, name, None) is node.target:
            return f"{place.__name__}.{name}"
    return f"{module}.{name}"


_ROLES = {
    "PARAMETER": "param",
    "BUFFER": "buffer",
    "CONSTANT_TENSOR": "const",
    "USER_INPUT": "input",
}


def import_graph(
    graph, mesh: dict[str, int], types=None, groups=None, inputs=None, sync=None
) -> dict:
    """The trace of a GraphModule, or of what torch.export gives, as plain data.

    `graph` may be the pair that `aot_export_module` gives, of a graph and its signature.
    `types`: by name, or pattern of names, of inputs and parameters: the kind on each axis.
    `groups`: by name of a process group: its axes. `inputs`: tensors to find the shapes with, where
    the graph has none. `sync`: by axis: the reduction (sum, avg) of gradients outside of the graph.
    """
    types, groups = dict(types or {}), dict(groups or {})
    graph, beside = graph if isinstance(graph, tuple) else (graph, None)
    signature, owner, frontend = {}, graph, "fx"
    if beside is not None:
        whose = [("param", beside.inputs_to_parameters), ("buffer", beside.inputs_to_buffers)]
        signature = {name: (role, of) for role, one in whose for name, of in one.items()}
    if isinstance(graph, torch.export.ExportedProgram):
        owner, frontend, beside = graph.graph_module, "pt2", graph.graph_signature
        for one in graph.graph_signature.input_specs:
            name = getattr(one.arg, "name", None)
            signature[name] = (_ROLES.get(one.kind.name), one.target or name)
    elif inputs is not None or any(node.op == "call_module" for node in graph.graph.nodes):
        owner = torch.fx.GraphModule(graph, _Everything().trace(graph))
    if inputs is not None:
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
            given = [mode.from_tensor(one) for one in inputs]
            FakeTensorProp(owner, mode).propagate_dont_convert_inputs(*given)
    made = _Graph(owner.graph, owner, mesh, types, groups)
    made.joint, made.sync = joint.read(owner.graph, beside), dict(sync or {})
    if unknown := [axis for axis in made.sync if axis not in mesh]:
        raise ValueError(f"{unknown[0]} is no axis of the mesh: {', '.join(mesh)}")
    made.read(signature)
    if made.unused:
        names = ", ".join(one["name"] for one in made.params)
        raise ValueError(f"nothing is called {', '.join(sorted(made.unused))}; there are: {names}")
    return made.trace(frontend)


def example_input(text: str) -> torch.Tensor:
    words = {word: dtype for dtype, word in DTYPES.items()}
    found = re.fullmatch(r"(\w+)\[([\d, ]*)\]", text)
    if not found or found[1] not in words:
        raise argparse.ArgumentTypeError(f"{text}: an input is DTYPE[SIZE,SIZE], such as f32[8,16]")
    return torch.empty([int(n) for n in re.findall(r"\d+", found[2])], dtype=words[found[1]])


def _load(path: pathlib.Path):
    if path.suffix == ".pt2":
        return torch.export.load(path)
    if zipfile.is_zipfile(path):
        return torch.load(path, weights_only=False)
    return pickle.loads(path.read_bytes())


def run(parser: argparse.ArgumentParser, options) -> int:
    if options.mesh is None:
        parser.error(f"{options.file}: a graph says nothing of the mesh: --mesh AXIS=SIZE,...")
    try:
        graph = _load(options.file)
    except (
        RuntimeError,
        ValueError,
        AttributeError,
        ImportError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        parser.error(
            f"{options.file} is neither an archive of torch.export nor a saved graph: {error}"
        )
    if not isinstance(graph, (torch.export.ExportedProgram, torch.fx.GraphModule)):
        parser.error(f"{options.file} holds a {type(graph).__name__}, and no graph")
    try:
        trace = import_graph(
            graph,
            options.mesh,
            dict(options.type),
            dict(options.group),
            options.input,
            dict(options.sync),
        )
    except (NotImplementedError, ValueError) as error:
        parser.error(f"{options.file}: {error}")
    options.output.write_text(document.text(trace), encoding="utf-8")
    print(f"{options.output}: {trace['op_count']} operations")
    return 0
