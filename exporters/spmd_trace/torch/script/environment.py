"""The number of ranks that a script reads from its environment, as a number that remembers it.

`int(os.environ["WORLD_SIZE"])` is the size of the group of all ranks as much as
`dist.get_world_size()` is, but `int` makes a plain number of whatever it is given. So such calls
are wrapped where the source of the script, or of a module of its own, is compiled.
"""

import ast
import builtins
import contextlib
import importlib.machinery
import runpy
import types

from ..frameworks.cpu import replaced
from ..ranks import groupsizes

_NAME = "WORLD_SIZE"
_WRAPPER = "__spmd_trace_world_size__"


class _Wrapped(ast.NodeTransformer):
    """Puts the wrapper around each `int(...)` of something that names the variable."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        whole = isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1
        if not whole or node.keywords:
            return node
        constants = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
        if _NAME not in constants:
            return node
        wrapper = ast.copy_location(ast.Name(_WRAPPER, ast.Load()), node)
        return ast.copy_location(ast.Call(wrapper, [node], []), node)


def _compiled(source, name: str, mode: str = "exec", *args, **kwargs) -> types.CodeType:
    text = source.encode() if isinstance(source, str) else source
    if mode != "exec" or not isinstance(text, bytes) or _NAME.encode() not in text:
        return compile(source, name, mode, *args, **kwargs)
    return compile(_Wrapped().visit(ast.parse(source, name)), name, mode, *args, **kwargs)


@contextlib.contextmanager
def followed(world: int, is_own):
    """While it lasts, the script and modules whose file `is_own(path)` are compiled so."""
    load = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader, module):
        path = loader.get_filename(module)
        if not is_own(path):
            return load(loader, module)
        source = loader.get_data(path)  # what is wrapped is not to be found in a cache of others
        return _compiled(source, path) if _NAME.encode() in source else load(loader, module)

    def world_size(number: int):
        return groupsizes.all_ranks(world) if number == world else number

    with (
        replaced(builtins, **{_WRAPPER: world_size}),
        replaced(runpy, compile=_compiled),
        replaced(importlib.machinery.SourceFileLoader, get_code=get_code),
    ):
        yield
