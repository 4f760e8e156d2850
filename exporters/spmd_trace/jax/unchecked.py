"""Programs with shard_maps in which JAX checks nothing (`check_vma=False`).

Nothing is inferred there, so the trace has no types but those that the specs state: the whole
program is one of what each rank holds, judged gradually. The bodies of shard_maps stand in their
place; what one of them returns, another one takes by the same spec as it was. Where something else
uses it, the spec is a claim.
"""

import math

import jax
from jax._src import core
from jax.sharding import PartitionSpec

from . import regions
from .document import Body, Program, Value
from .locations import phase_of
from .ownparts import OwnParts
from .pointwise import is_pointwise
from .recorder import Recorder, add_outputs, call_of
from .redistribution import entry_axes, redistribute
from .refused import Unrecordable
from .numbers.sizes import Sizes
from .specs import axes_of
from .states import Region, local_shape, spec_entries
from .versions import partitions


def is_unchecked(jaxpr) -> bool:
    """Whether a shard_map in it is not checked by JAX."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            if not eqn.params["check_vma"]:
                return True
        elif any(map(is_unchecked, core.jaxprs_in_params(eqn.params))):
            return True
    return False


def placed(sizes, aval, spec) -> Value:
    """A whole array as the blocks that a spec says."""
    local = local_shape(aval.shape, spec, sizes)
    entries = spec_entries(spec, len(local), tuple(sizes))
    cut = {axis for one in entries for axis in ([one] if isinstance(one, str) else one or ())}
    kinds = {axis: "V" if axis in cut else "R" for axis in sizes}
    made = Region.untyped_of(sizes).value(aval)
    return Value(made.dtype, local, kinds, entries if any(entries) else None, made.derived)


def first_mesh(jaxpr):
    """The mesh of the first shard_map; none: there is none."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            return eqn.params["mesh"]
        for body in core.jaxprs_in_params(eqn.params):
            if (found := first_mesh(body)) is not None:
                return found
    return None


class Outside(Recorder):
    """What surrounds the shard_maps: operations on whole arrays."""

    def __init__(self, program, body, region):
        super().__init__(program, body, region)
        self.left: dict[core.Var, tuple] = {}  # what shard_maps return: value, spec, equation, name

    def operand(self, atom):
        if isinstance(atom, core.Var) and atom not in self.values and atom in self.left:
            self._claim(atom)
        return super().operand(atom)

    def held(self, atom):
        if isinstance(atom, core.Var) and atom not in self.values and atom in self.left:
            self._claim(atom)
        return super().held(atom)

    def part(self):
        inner = Outside(self.program, self.body, self.region)
        inner._eqn, inner.around = self._eqn, self.called_at()
        return inner

    def _claim(self, var) -> None:
        """What the spec of a shard_map says of what it returns."""
        item, spec, eqn, path, made = self.left[var]
        out = placed(self.region.sizes, var.aval, spec)
        outer, self._eqn = self._eqn, eqn
        self.around = self.program.locations.function(eqn.params["jaxpr"].debug_info)
        if not isinstance(item, Value):
            block = eqn.params["jaxpr"].outvars[eqn.outvars.index(made)]
            item = self.full(item, block.aval)
        else:
            item = self.whole(item, var.aval)
        # The gradient of what is cut may be the same for all blocks, as that of a sum is.
        if phase_of(str(eqn.source_info.name_stack)) == "bwd" and self._is_equal(made, eqn):
            out = self._of_equal_blocks(item, out)
        else:
            stated = {"type": out.type} | ({"spec": out.spec} if out.spec else {})
            op = self.emit("assert_type", [item], [out], stated, expected=False)
            op.scope = self.program.locations.scope_named(path)
        self._eqn, self.around = outer, None
        self.values[var] = out

    def _is_equal(self, var, eqn) -> bool:
        """Whether a result of a shard_map is made of nothing in which ranks differ."""
        inner = eqn.params["jaxpr"]
        needed = _needed(inner, {inner.outvars[eqn.outvars.index(var)]})
        if needed is None:
            return False
        return not any(
            taken in needed and any(map(axes_of, spec)) and self._differs(atom)
            for taken, atom, spec in zip(
                inner.invars, eqn.invars, map(partitions, eqn.params["in_specs"])
            )
        )

    def _differs(self, atom) -> bool:
        if isinstance(atom, core.Literal):
            return False
        if atom in self.left:
            _, _, eqn, _, made = self.left[atom]
            return not self._is_equal(made, eqn)
        return atom not in self.values or isinstance(self._known(atom), Value)

    def _of_equal_blocks(self, block: Value, out: Value) -> Value:
        """The whole array that is the same block again and again, in the blocks of a spec."""
        whole = block
        for dim, entry in enumerate(out.spec or ()):
            ranks = math.prod(self.region.sizes[axis] for axis in axes_of(_entry(entry)))
            if ranks > 1:
                shape = [*whole.shape]
                shape[dim] *= ranks
                made = Value(out.dtype, shape, {axis: "R" for axis in out.type})
                self.emit("concatenate", [whole] * ranks, [made], {"dimension": dim})
                whole = made
        return self._as(whole, out)

    def closed(self, closed, atoms, eqn) -> None:
        inner = self.part()
        for var, atom in zip(closed.jaxpr.invars, atoms):
            if isinstance(atom, core.Var) and atom not in self.values and atom in self.left:
                inner.left[var] = self.left[atom]
                continue
            item = self.operand(atom)
            inner.values[var] = item if isinstance(item, Value) else inner.written(item, atom.aval)
        inner.body_of(closed)
        for var, atom in zip(eqn.outvars, closed.jaxpr.outvars):
            if isinstance(atom, core.Var) and atom not in inner.values and atom in inner.left:
                self.left[var] = inner.left[atom]
                continue
            item = inner.operand(atom)
            self.values[var] = item if isinstance(item, Value) else self.written(item, var.aval)

    def body_of(self, closed) -> None:
        for var, value in zip(closed.jaxpr.constvars, closed.consts):
            self._constant(var, value)
        outer = self._eqn
        for eqn in closed.jaxpr.eqns:
            self._eqn = eqn
            self._equation(eqn)
        self._eqn = outer

    def _equation(self, eqn) -> None:
        name = eqn.primitive.name
        if not eqn.outvars:
            return
        constant = not any(isinstance(self._known(atom), Value) for atom in eqn.invars)
        if name == "shard_map":
            self._shard_map(eqn)
        elif name == "scan" and first_mesh(eqn.params["jaxpr"].jaxpr) is not None:
            self._scan(eqn)
        elif name in ("reshard", "sharding_constraint"):
            self._reshard(eqn)
        elif call_of(eqn) is not None or (
            constant and name in ("convert_element_type", "broadcast_in_dim")
        ):
            super()._equation(eqn)
        else:
            self._whole(eqn)

    def _known(self, atom):
        if isinstance(atom, core.Var) and atom not in self.values and atom in self.left:
            return self.left[atom][0]
        return self.operand(atom)

    def _shard_map(self, eqn) -> None:
        jaxpr = eqn.params["jaxpr"]
        inner = Recorder(self.program, self.body, self.region)
        inner.around = self.program.locations.function(jaxpr.debug_info)
        for var, atom, spec in zip(jaxpr.invars, eqn.invars, eqn.params["in_specs"]):
            inner.values[var] = self._entering(var, atom, spec)
        results = [  # a list of the turns of a loop goes to the backward as its rows
            inner.whole(item, atom.aval)
            if isinstance(item, Value) and id(item) not in self.program.rows
            else item
            for item, atom in zip(inner.jaxpr(jaxpr), jaxpr.outvars)
        ]
        paths = jaxpr.debug_info.result_paths or ()
        for place, (var, item) in enumerate(zip(eqn.outvars, results)):
            path = paths[place] if place < len(paths) else "result"
            path = path.replace("result", "out_specs", 1)
            self.left[var] = (item, eqn.params["out_specs"][place], eqn, path, var)

    def _scan(self, eqn) -> None:
        if not regions.has_few_turns(eqn):
            length = eqn.params["length"]
            raise Unrecordable(f"a scan of {length} turns around a shard_map: jit one turn of it")
        regions.turns(self, eqn)

    def _entering(self, var, atom, spec) -> Value:
        if isinstance(atom, core.Var) and atom not in self.values and atom in self.left:
            item, left, *_ = self.left[atom]
            if left == spec:
                return item if isinstance(item, Value) else self.written(item, var.aval)
        item = self.operand(atom)
        if not isinstance(item, Value):
            return self.written(item, var.aval)
        return self._as(item, placed(self.region.sizes, atom.aval, spec))

    def _as(self, value: Value, like: Value) -> Value:
        """The same whole array in other blocks."""
        if value.spec == like.spec:
            return value
        made = Value(value.dtype, like.shape, like.type, like.spec, value.derived)
        redistribute(self, value, made)
        return made

    def _reshard(self, eqn) -> None:
        """The same array, where the program wants it."""
        (atom,), (var,) = eqn.invars, eqn.outvars
        item, spec = (
            self.operand(atom),
            (eqn.params.get("dst_sharding") or eqn.params["sharding"]).spec,
        )
        if isinstance(item, Value):
            self.values[var] = self._as(item, placed(self.region.sizes, atom.aval, spec))
        else:
            self.values[var] = self.written(item, var.aval)

    def _whole(self, eqn) -> None:
        """An operation that the compiler divides: blocks where it is one for each element, else
        whole."""
        name = eqn.primitive.name
        shape = getattr(eqn.outvars[0].aval, "shape", ())
        values = [self._known(atom) for atom in eqn.invars]
        for atom, value in zip(eqn.invars, values):
            if isinstance(value, Value):
                self.operand(atom)
        like = None
        if is_pointwise(name):
            like = next((value for atom in eqn.invars
                         if isinstance(value := self.operand(atom), Value)
                         and atom.aval.shape == shape and value.spec), None)  # fmt: skip
        whole = {axis: "R" for axis in self.region.sizes}
        kept = dict(self.values)
        for atom in eqn.invars:
            value = self.operand(atom)
            if not isinstance(value, Value) or isinstance(atom, core.Literal):
                continue
            target = Value(value.dtype, list(atom.aval.shape), whole)
            if like is not None and len(atom.aval.shape) == len(shape):
                target = self._beside(like, atom.aval, shape)
            self.values[atom] = self._as(value, target)
        outs = []
        for var in eqn.outvars:
            made = self.region.value(var.aval)
            made.type = dict(like.type if like is not None else whole)
            made.spec, made.shape = (like.spec, list(like.shape)) if like else (None, made.shape)
            outs.append(made)
        made = self.ordinary(name, eqn, outs)
        self.values = kept | {
            # Of numbers alone a number was made.
            var: out if made else self.values[var]
            for var, out in zip(eqn.outvars, outs)
        }

    def _beside(self, like: Value, aval, shape) -> Value:
        """An operand in the blocks of another one; one element is stretched over all of them."""
        entries = [
            tuple(entry_axes(like, dim)) if extent == whole else ()
            for dim, (extent, whole) in enumerate(zip(aval.shape, shape))
        ]
        return placed(self.region.sizes, aval, PartitionSpec(*entries))


def _entry(axes):
    """Of a spec, as JAX has it."""
    return tuple(axes) if isinstance(axes, list) else axes


def _needed(jaxpr, wanted: set) -> set | None:
    """The variables that values are made of; none: they depend on which rank it is."""
    needed = {one for one in wanted if isinstance(one, core.Var)}
    for eqn in reversed(jaxpr.eqns):
        if not needed.intersection(eqn.outvars):
            continue
        atoms = eqn.invars
        if (call := call_of(eqn)) is not None:
            body, atoms = call[0].jaxpr, call[1]
            pairs = zip(eqn.outvars, body.outvars)
            inside = _needed(body, {inner for var, inner in pairs if var in needed})
            if inside is None:
                return None
            atoms = [atom for var, atom in zip(body.invars, atoms) if var in inside]
        elif _asks_for_rank(eqn):
            return None
        needed |= {atom for atom in atoms if isinstance(atom, core.Var)}
    return needed


def _asks_for_rank(eqn) -> bool:
    inner = [one for body in core.jaxprs_in_params(eqn.params) for one in body.eqns]
    return eqn.primitive.name == "axis_index" or any(map(_asks_for_rank, inner))


def _entry_specs(jaxpr) -> dict:
    """By argument, the spec of the first shard_map that takes it."""
    said: dict[core.Var, PartitionSpec] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            specs = dict([pair for pair in zip(eqn.invars, eqn.params["in_specs"])
                          if isinstance(pair[0], core.Var)])  # fmt: skip
        elif (call := call_of(eqn)) is not None:
            inner = call[0].jaxpr
            found = _entry_specs(inner)
            specs = {atom: found[var] for atom, var in zip(call[1], inner.invars)
                     if var in found and isinstance(atom, core.Var)}  # fmt: skip
        elif eqn.primitive.name == "scan":
            inner = eqn.params["jaxpr"].jaxpr
            first = eqn.params["num_consts"] + eqn.params["num_carry"]  # of what turns take rows of
            found = _entry_specs(inner)
            found |= {var: PartitionSpec(None, *partitions(found[var]))
                      for var in inner.invars[first:] if var in found}  # fmt: skip
            specs = {atom: found[var] for atom, var in zip(eqn.invars, inner.invars)
                     if var in found and isinstance(atom, core.Var)}  # fmt: skip
        else:
            continue
        for atom, spec in specs.items():
            said.setdefault(atom, spec)
    return said


def record_unchecked(closed, mesh, names, sizes: Sizes, shardings=()) -> Program:
    """The program of a jaxpr of whole arrays, in which shard_maps are not checked. Gradients in it
    are values like others: what they must be is what the specs say. shardings: specs of arguments
    that no shard_map takes.
    """
    region = Region.untyped_of(dict(mesh.shape))
    program = Program(dict(mesh.shape), f"jax {jax.__version__}", Body("main", region.manual))
    program.gradual, program.sizes = True, sizes
    program.parts = OwnParts(region.sizes)
    recorder = Outside(program, program.main, region)
    specs = _entry_specs(closed.jaxpr)
    for var, spec in zip(closed.jaxpr.invars, shardings):
        specs.setdefault(var, spec or PartitionSpec())
    values = [placed(region.sizes, var.aval, specs.get(var, PartitionSpec()))
              for var in closed.jaxpr.invars]  # fmt: skip
    recorder.parameters(closed.jaxpr.invars, names, values=values)
    recorder.body_of(closed)
    results = [recorder.operand(atom) for atom in closed.jaxpr.outvars]
    add_outputs(program, results)
    return program
