"""Stand-ins for packages that a framework imports and a recorded step does not use.

A name from such a package is a class without content, good for annotations, base classes and
`isinstance`; it computes nothing.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types


class _Nothing(type):
    """The class of everything that a stand-in offers: attributes and calls give more of it."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing(name, (), {})

    def __call__(cls, *args, **kwargs):
        return cls


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing(name, (), {"__module__": self.__name__})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]):
        self.names = names

    def find_spec(self, name, path, target=None):
        if not any(name == known or name.startswith(known + ".") for known in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


@contextlib.contextmanager
def installed(packages: tuple[str, ...], modules: tuple[str, ...] = ()):
    """Stands in for those of `packages` that are not installed, and for all of `modules`."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    finder = _Finder((*missing, *modules))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
