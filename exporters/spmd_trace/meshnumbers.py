"""The numbers that a script makes its mesh of, and the script with 1 in their place.

`Mesh(devices.reshape(data, model), ...)` names `data` and `model`, wherever these come from: a
constant, the default of a parameter or of an option, a field of a configuration, an argument of a
call. So do `rank % model`, and the pairs of ranks that a `ppermute` is given. What else the script
computes from them is then that of one device, too.
"""

import ast
import pathlib
import re
import sys
import types

# What makes a mesh or a group of ranks, and which argument says of what.
_MESHES = dict.fromkeys(["Mesh", "make_mesh", "AbstractMesh", "create_device_mesh"], 0)
_MESHES |= {"create_hybrid_device_mesh": 0, "new_group": 0, "init_device_mesh": 1, "DeviceMesh": 1}
_SENDS = {"ppermute": 2, "pshuffle": 2}  # by whom to whom: the argument
_RANKS = re.compile(r"(.*_)?(rank|world|world_size|WORLD_SIZE|RANK)$|get_rank$|get_world_size$")
_SETTINGS = {"get", "getenv"}  # of the environment
_DEEPEST = 8  # assignments that are followed from the mesh back


def run_for_one_device(script: str) -> None:
    """Runs a script, with the arguments of this process."""
    source = pathlib.Path(script).read_text(encoding="utf-8")
    tree, sys.argv[1:] = for_one_device(source, sys.argv[1:])
    module = types.ModuleType("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    exec(compile(tree, script, "exec"), module.__dict__)


def for_one_device(source: str, arguments: list[str]) -> tuple[ast.Module, list[str]]:
    """A script and its arguments."""
    tree = ast.parse(source)
    names = _of_meshes(tree)
    return _Ones(names, tree).visit(tree), _ones_of(arguments, names)


def _of_meshes(tree: ast.Module) -> set[str]:
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in _pairs(target, node.value):
                    assigned.setdefault(name, []).append(value)
    found: set[str] = set()
    todo = [(one, 0) for one in _arguments(tree, _MESHES, "shape")]
    todo += [
        (node.right, 0)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.Mod, ast.FloorDiv))
        and any(map(_RANKS.match, _words(node.left)))
    ]
    todo += [(one, 0) for one in _of_sends(tree, assigned)]
    todo += [(one, 0) for one in _of_devices(tree)]
    while todo:
        expression, depth = todo.pop()
        for name in _numbers_named(expression) - found:
            found.add(name)
            if depth < _DEEPEST:
                todo += [(one, depth + 1) for one in assigned.get(name, [])]
    return found


def _arguments(tree: ast.Module, functions: dict[str, int], keyword: str) -> list[ast.expr]:
    """What calls of these functions are given at a position, or by a keyword with this word."""
    return [
        one
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) in functions
        for one in (
            *node.args[functions[_called(node)] :][:1],
            *(k.value for k in node.keywords if keyword in (k.arg or "")),
        )
    ]


def _of_sends(tree: ast.Module, assigned: dict[str, list[ast.expr]]) -> list[ast.expr]:
    """What says how many ranks send: `n` in `[(i, (i + 1) % n) for i in range(n)]`."""
    lists = _arguments(tree, _SENDS, "perm")
    lists += [
        one for name in lists if isinstance(name, ast.Name) for one in assigned.get(name.id, [])
    ]
    found = []
    for node in (inner for one in lists for inner in ast.walk(one)):
        if isinstance(node, ast.comprehension):
            found.append(node.iter)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            found.append(node.right)
    return found


def _of_devices(tree: ast.Module) -> list[ast.expr]:
    """What says how many virtual devices XLA is to have."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for text, value in zip(node.values, node.values[1:]):
                if isinstance(text, ast.Constant) and str(text.value).endswith("device_count="):
                    found.append(value)
        elif isinstance(node, ast.Call) and _called(node) == "update" and len(node.args) == 2:
            if getattr(node.args[0], "value", None) == "jax_num_cpu_devices":
                found.append(node.args[1])
    return found


def _words(expression: ast.expr) -> set[str]:
    """All names in an expression, of what is called as well."""
    nodes = list(ast.walk(expression))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _numbers_named(expression: ast.expr) -> set[str]:
    """Variables, fields and keys in an expression; not what is called, nor modules."""
    called = {id(node.func) for node in ast.walk(expression) if isinstance(node, ast.Call)}
    inside = {id(node.value) for node in ast.walk(expression) if isinstance(node, ast.Attribute)}
    found = set()
    for node in ast.walk(expression):
        if id(node) in called or id(node) in inside:
            continue
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if isinstance(node.slice.value, str):
                found.add(node.slice.value)
    return found


def _pairs(target, value):
    """Names and what they become."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield target.attr, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        many = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for place, one in enumerate(target.elts):
            yield from _pairs(one, value.elts[place] if many else value)


def _is_number(node) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1


class _Ones(ast.NodeTransformer):
    """Writes 1 for numbers that become what is named."""

    def __init__(self, names: set[str], tree: ast.Module):
        self._names = names
        self._functions = {
            node.name: [one.arg for one in node.args.args]
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
        }

    def _one(self, node):
        return ast.copy_location(ast.Constant(1), node) if _is_number(node) else node

    def visit_Assign(self, node: ast.Assign):
        self.generic_visit(node)
        for target in node.targets:
            many = isinstance(target, (ast.Tuple, ast.List)) and isinstance(
                node.value, (ast.Tuple, ast.List)
            )
            if many and len(target.elts) == len(node.value.elts):
                node.value.elts = [
                    self._if(_name(one), value) for one, value in zip(target.elts, node.value.elts)
                ]
            else:
                node.value = self._if(_name(target), node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign):
        self.generic_visit(node)
        if node.value is not None:
            node.value = self._if(_name(node.target), node.value)
        return node

    def visit_arguments(self, node: ast.arguments):
        self.generic_visit(node)
        plain = [*node.posonlyargs, *node.args]
        first = len(plain) - len(node.defaults)
        node.defaults = [
            self._if(one.arg, value) for one, value in zip(plain[first:], node.defaults)
        ]
        node.kw_defaults = [
            value and self._if(one.arg, value)
            for one, value in zip(node.kwonlyargs, node.kw_defaults)
        ]
        return node

    def visit_Call(self, node: ast.Call):
        self.generic_visit(node)
        for keyword in node.keywords:
            if keyword.arg:
                keyword.value = self._if(keyword.arg, keyword.value)
        parameters = self._functions.get(_called(node), [])
        for place, name in enumerate(parameters[: len(node.args)]):
            node.args[place] = self._if(name, node.args[place])
        if _called(node) == "add_argument" and self._names & _options(node):
            for keyword in node.keywords:
                if keyword.arg == "default":
                    keyword.value = self._one(keyword.value)
        return node

    def visit_Dict(self, node: ast.Dict):
        self.generic_visit(node)
        node.values = [
            self._if(getattr(key, "value", None), value)
            for key, value in zip(node.keys, node.values)
        ]
        return node

    def _if(self, name, value):
        if name not in self._names:
            return value
        # A variable of the environment, and what it is where nobody has set it.
        if isinstance(value, ast.Call) and _called(value) == "int":
            for call in ast.walk(value):
                if isinstance(call, ast.Call) and _called(call) in _SETTINGS:
                    call.args[1:] = [ast.copy_location(ast.Constant("1"), one)
                                     for one in call.args[1:]]  # fmt: skip
        return self._one(value)


def _name(target) -> str | None:
    return getattr(target, "id", None) or getattr(target, "attr", None)


def _options(call: ast.Call) -> set[str]:
    words = {one.value for one in call.args if isinstance(one, ast.Constant)}
    return {word.lstrip("-").replace("-", "_") for word in words if isinstance(word, str)}


def _ones_of(arguments: list[str], names: set[str]) -> list[str]:
    """Arguments of a command, with 1 after the options that are named."""
    made, named = [], False
    for word in arguments:
        option, equals, value = word.partition("=")
        is_named = word.startswith("-") and option.lstrip("-").replace("-", "_") in names
        if is_named and equals and value.isdigit():
            word = f"{option}=1"
        elif named and word.isdigit():
            word = "1"
        named = is_named and not equals
        made.append(word)
    return made
