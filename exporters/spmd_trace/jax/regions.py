"""Operations with bodies: shard_map, loops, branches, rematerialisation."""

from jax._src import core

from .document import Value
from .refused import Unrecordable
from .specs import axes_of
from .states import Region
from .versions import newly_manual, partitions


def _closed(jaxpr):
    return jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else core.ClosedJaxpr(jaxpr, ())


def _body(recorder, name: str, jaxpr, region=None):
    """A function of a jaxpr; it has no constants."""
    closed = _closed(jaxpr)
    if closed.consts:
        raise Unrecordable(f"a constant array inside the body of `{name}`: pass it as an argument")
    inner = recorder.inside(name, region or recorder.region)
    inner.parameters(closed.jaxpr.invars)
    results = inner.jaxpr(closed.jaxpr)
    avals = [atom.aval for atom in closed.jaxpr.outvars]
    inner.body.results = [
        inner.whole(item, aval) if isinstance(item, Value) else inner.full(item, aval)
        for item, aval in zip(results, avals)
    ]
    return inner.body


def _operands(recorder, eqn) -> list[Value]:
    return [recorder.tensor(atom) for atom in eqn.invars]


# A loop around messages is written out if it turns this often at most: in each turn a rank has the
# block of another one.
_MOST_TURNS = 64


def _sends(jaxpr) -> bool:
    return any(
        eqn.primitive.name == "ppermute" or any(map(_sends, core.jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


def has_few_turns(eqn) -> bool:
    """Whether a scan may be written out."""
    return 0 < eqn.params["length"] <= _MOST_TURNS


def turns(recorder, eqn) -> None:
    """The turns of a scan, one after another."""
    closed, params = eqn.params["jaxpr"], eqn.params
    first = params["num_consts"]
    last = first + params["num_carry"]
    consts, carry = (
        _items(recorder, part) for part in (eqn.invars[:first], eqn.invars[first:last])
    )
    lists = [recorder.held(atom) for atom in eqn.invars[last:]]
    rows = [None] * params["length"]
    for turn in sorted(range(params["length"]), reverse=params["reverse"]):
        taken = [
            _row(recorder, one, atom.aval, turn) for one, atom in zip(lists, eqn.invars[last:])
        ]
        made = _turn(recorder, closed, [*consts, *carry, *taken])
        carry, rows[turn] = made[: last - first], made[last - first :]
    recorder.values |= dict(zip(eqn.outvars, carry))
    for place, var in enumerate(eqn.outvars[last - first :]):
        recorder.values[var] = _listed(recorder, [row[place] for row in rows])


def _turn(recorder, closed, taken: list[Value]) -> list[Value]:
    """What the body of a loop makes of these, in its place."""
    inner = recorder.part()
    inner.values |= dict(zip(closed.jaxpr.invars, taken))
    made = inner.jaxpr(closed.jaxpr, closed.consts)
    return [_item(inner, one, var.aval) for one, var in zip(made, closed.jaxpr.outvars)]


def _items(recorder, atoms) -> list[Value]:
    return [_item(recorder, recorder.held(atom), atom.aval) for atom in atoms]


def _item(recorder, item, aval) -> Value:
    return recorder.whole(item, aval) if isinstance(item, Value) else recorder.written(item, aval)


def _row(recorder, item, aval, at: int) -> Value:
    """An element of a list."""
    if not isinstance(item, Value):
        return recorder.written(item, aval.update(shape=aval.shape[1:]))
    if id(item) in recorder.program.rows:
        return recorder.program.rows[id(item)][1][at]
    row, only = _copy(item), _copy(item)
    row.shape, only.shape = item.shape[1:], [1, *item.shape[1:]]
    if item.spec is not None:
        row.spec, only.spec = item.spec[1:], [None, *item.spec[1:]]
    attrs = {"start_indices": [at] + [0] * len(row.shape), "limit_indices": [at + 1, *row.shape]}
    recorder.emit("slice", [item], [only], attrs)
    recorder.emit("squeeze", [only], [row], {"dimensions": [0]})
    return row


def _listed(recorder, rows: list[Value]) -> Value:
    """A list that is made where something else than a loop reads it."""
    made = _stacked(rows[0], len(rows))
    recorder.program.rows[id(made)] = [made, rows, False]
    return made


def _stacked(row: Value, times: int) -> Value:
    """A list of so many like it."""
    made = _copy(row)
    made.shape = [times, *row.shape]
    made.spec = None if row.spec is None else [None, *row.spec]
    return made


def stack(recorder, item: Value) -> None:
    """Makes a list of its rows."""
    _, rows, done = recorder.program.rows[id(item)]
    if done:
        return
    recorder.program.rows[id(item)][2] = True
    parts = []
    for row in rows:
        if row.constant is not None:
            row, number = _copy(row), row.constant
            recorder.fill(row, number)
        parts.append(part := _stacked(row, 1))
        dims = {"broadcast_dimensions": list(range(1, len(part.shape))), "shape": part.shape}
        recorder.emit("broadcast_in_dim", [row], [part], dims)
    recorder.emit("concatenate", parts, [item], {"dimension": 0})


def _scan(recorder, eqn) -> None:
    params = eqn.params
    if recorder.region.untyped and has_few_turns(eqn) and _sends(params["jaxpr"].jaxpr):
        turns(recorder, eqn)
        return
    body = _body(recorder, "scan_body", params["jaxpr"])
    attrs = {"consts": params["num_consts"], "carry": params["num_carry"]}
    attrs |= {"length": params["length"], "reverse": params["reverse"]}
    ins = _operands(recorder, eqn)
    recorder.emit("scan", ins, recorder.results(eqn, True), attrs, {"body": body})


def _count(recorder, eqn) -> int | None:
    """How often a loop turns that counts up by one to a number, as a lowered scan does; None: it is
    not known."""
    of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    test, step = (_closed(eqn.params[name]).jaxpr for name in ("cond_jaxpr", "body_jaxpr"))
    asked = test.eqns[0] if len(test.eqns) == 1 else None
    carried = test.invars[of_cond:]
    if asked is None or asked.primitive.name != "lt" or asked.invars[0] not in carried:
        return None
    place, last = carried.index(asked.invars[0]), asked.invars[1]
    first = recorder.held(eqn.invars[of_cond + of_body + place])
    counts = any(
        each.primitive.name == "add"
        and each.outvars[0] is step.outvars[place]
        and each.invars[0] is step.invars[of_body + place]
        and isinstance(each.invars[1], core.Literal)
        and each.invars[1].val == 1
        for each in step.eqns
    )
    if not counts or not isinstance(last, core.Literal) or type(first) is not int:
        return None
    return max(0, int(last.val) - first)


def _counted(recorder, eqn, count: int) -> None:
    """The turns of a loop that counts them."""
    closed, of_body = _closed(eqn.params["body_jaxpr"]), eqn.params["body_nconsts"]
    atoms = eqn.invars[eqn.params["cond_nconsts"] :]
    consts, carry = (_items(recorder, part) for part in (atoms[:of_body], atoms[of_body:]))
    for _ in range(count):
        carry = _turn(recorder, closed, [*consts, *carry])
    recorder.values |= dict(zip(eqn.outvars, carry))


def _while(recorder, eqn) -> None:
    params = eqn.params
    of_cond, of_body = params["cond_nconsts"], params["body_nconsts"]
    if recorder.region.untyped and _sends(_closed(params["body_jaxpr"]).jaxpr):
        count = _count(recorder, eqn)
        if count is not None and count <= _MOST_TURNS:
            _counted(recorder, eqn, count)
            return
    ins = _operands(recorder, eqn)
    test, step = _closed(params["cond_jaxpr"]), _closed(params["body_jaxpr"])
    spare = [core.Var(var.aval) for var in test.jaxpr.invars[:of_cond]]
    other = [core.Var(var.aval) for var in step.jaxpr.invars[:of_body]]
    # Both bodies take the constants of both.
    step = _with_invars(step, [*spare, *step.jaxpr.invars])
    test = _with_invars(test, [*test.jaxpr.invars[:of_cond], *other, *test.jaxpr.invars[of_cond:]])
    test_body = _body(recorder, "while_cond", test)
    if shape := test_body.results[0].shape:  # of a loop that is mapped: until all of them are done
        inner = recorder.inside("while_any", recorder.region)
        inner.body = test_body
        done = inner.region.value(test.jaxpr.outvars[0].aval, False)
        done.shape = []
        axes = {"axes": list(range(len(shape)))}
        inner.emit("reduce_or", [test_body.results[0]], [done], axes, expected=False)
        test_body.results = [done]
    bodies = {
        "cond": test_body,
        "body": _body(recorder, "while_body", step),
    }
    recorder.emit("while", ins, recorder.results(eqn, True), {"consts": of_cond + of_body}, bodies)


def _with_invars(closed, invars):
    names = closed.jaxpr.debug_info._replace(arg_names=None)
    return core.ClosedJaxpr(closed.jaxpr.replace(invars=invars, debug_info=names), closed.consts)


def _cond(recorder, eqn) -> None:
    branches = [_closed(one) for one in eqn.params["branches"]]
    index = recorder.operand(eqn.invars[0])
    if not isinstance(index, Value):  # it is known which one
        recorder.closed(branches[min(max(int(index), 0), len(branches) - 1)], eqn.invars[1:], eqn)
        return
    ins = [recorder.tensor(one) for one in eqn.invars[1:]]
    bodies = [_body(recorder, f"branch{place}_body", one) for place, one in enumerate(branches)]
    _choice(recorder, index, ins, bodies, 0, recorder.results(eqn, True))


def _choice(recorder, index: Value, ins: list[Value], bodies: list, first: int, outs) -> None:
    """The first of these bodies, or a choice among the others. An index too large is the last."""
    chosen = Value("bool", [], index.type, index.spec, index.derived)
    recorder.emit("gt", [index, first], [chosen])
    later = bodies[1]
    if len(bodies) > 2:
        inner = recorder.inside("later_body", recorder.region)
        params = [_copy(one) for one in (index, *ins)]
        for one in params:
            inner.body.add_param(one)
        inner.body.results = [_copy(one) for one in outs]
        _choice(inner, params[0], params[1:], bodies[1:], first + 1, inner.body.results)
        later = inner.body
        bodies = [_taking_index(recorder, bodies[0], index), later]
        ins = [index, *ins]
    regions = {"then": later, "else": bodies[0]}
    recorder.emit("cond", [chosen, *ins], outs, regions=regions)


def _copy(value: Value) -> Value:
    return Value(value.dtype, value.shape, value.type, value.spec, value.derived)


def _taking_index(recorder, body, index: Value):
    """The same body with an index in front that it has no use for."""
    spare = _copy(index)
    body.params.insert(0, spare)
    body.names.insert(0, "")
    body.roles.insert(0, "input")
    return body


def _checkpoint(recorder, eqn) -> None:
    body = _body(recorder, "checkpoint_body", eqn.params["jaxpr"])
    recorder.emit("checkpoint", _operands(recorder, eqn), recorder.results(eqn, True), {},
                  {"body": body})  # fmt: skip


def _shard_map(recorder, eqn) -> None:
    params = eqn.params
    if recorder.region.untyped:
        _nested(recorder, eqn)
        return
    manual = [axis for axis in params["mesh"].axis_names if axis in newly_manual(eqn)]
    region = recorder.region
    ins = _operands(recorder, eqn)
    takes = [region.boundary(atom.aval, spec, manual).claim()
             for atom, spec in zip(eqn.invars, params["in_specs"])]  # fmt: skip
    body = _body(recorder, "shard_map_body", params["jaxpr"], region.inside(manual))
    outs = [region.boundary(var.aval, spec, manual)
            for var, spec in zip(eqn.outvars, params["out_specs"])]  # fmt: skip
    recorder.values |= dict(zip(eqn.outvars, outs))
    attrs = {"axis": manual, "in_types": takes, "out_types": [out.claim() for out in outs]}
    recorder.emit("local_map", ins, outs, attrs, {"body": body})


def _nested(recorder, eqn) -> None:
    """A shard_map inside of one without states: what it takes is whole along its axes, or left in
    the same blocks by another one; its body stands in its place."""
    params, jaxpr = eqn.params, eqn.params["jaxpr"]
    blocks = recorder.program.blocks
    inner = recorder.part()
    inner.around = recorder.program.locations.function(jaxpr.debug_info)
    for var, atom, spec in zip(jaxpr.invars, eqn.invars, params["in_specs"]):
        item = recorder.held(atom)
        if not isinstance(item, Value):
            inner.values[var] = recorder.written(item, var.aval)
        elif blocks.get(id(item)) == spec:
            inner.values[var] = part = _copy(item)
            recorder.emit("copy", [item], [part])
        else:
            inner.values[var] = _cut(recorder, recorder.tensor(atom), spec, var.aval)
    for var, item, spec in zip(eqn.outvars, inner.jaxpr(jaxpr), params["out_specs"]):
        if not isinstance(item, Value):
            recorder.values[var] = recorder.written(item, var.aval)
            continue
        recorder.values[var] = out = _claimed(recorder, item, spec, eqn)
        if any(map(axes_of, partitions(spec))):
            blocks[id(out)] = spec


def _cut(recorder, item: Value, spec, aval) -> Value:
    for dim, entry in enumerate(partitions(spec)):
        if axes := list(axes_of(entry)):
            part = recorder.region.value(aval, item.derived)
            part.shape = [*item.shape[:dim], aval.shape[dim], *item.shape[dim + 1 :]]
            recorder.emit("convert", [item], [part], {"axis": axes, "dst": f"S({dim})"})
            item = part
    return item


def _claimed(recorder, item: Value, spec, eqn) -> Value:
    """What a shard_map inside of another one makes: equal along the axes that the spec leaves
    out."""
    cut = {axis for entry in partitions(spec) for axis in axes_of(entry)}
    axes = [axis for axis in eqn.params["mesh"].axis_names if axis in newly_manual(eqn) - cut]
    out = _copy(item)
    if not axes:
        recorder.emit("copy", [item], [out])
        return out
    claim = {"type": dict.fromkeys(axes, "R")}
    op = recorder.emit("assert_type", [item], [out], claim, expected=False)
    op.loc = recorder.program.locations.function(eqn.params["jaxpr"].debug_info)
    return out


def whole(recorder, item: Value, aval) -> Value:
    """What a shard_map inside of another one has left in blocks, as other operations take it."""
    for dim, entry in enumerate(partitions(recorder.program.blocks[id(item)])):
        if axes := list(axes_of(entry)):
            out = recorder.region.value(aval, item.derived)
            out.shape = [*item.shape[:dim], aval.shape[dim], *item.shape[dim + 1 :]]
            attrs = {"axis": axes, "src": f"S({dim})", "dst": "R", "dim": dim}
            recorder.emit("all_gather", [item], [out], attrs)
            item = out
    return item


def entry_values(jaxpr, region: Region) -> list[Value]:
    """Arguments on axes that are left to the compiler: as the shard_map that takes them says."""
    said: dict[core.Var, Value] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            manual = newly_manual(eqn)
            for atom, spec in zip(eqn.invars, eqn.params["in_specs"]):
                if isinstance(atom, core.Var):
                    said.setdefault(atom, region.boundary(atom.aval, spec, manual))
        elif eqn.primitive.name in ("jit", "pjit"):
            inner = _closed(eqn.params["jaxpr"]).jaxpr
            for atom, value in zip(eqn.invars, entry_values(inner, region)):
                if isinstance(atom, core.Var) and value.type:
                    said.setdefault(atom, value)
    return [said.get(var) or region.value(var.aval) for var in jaxpr.invars]


RECORDED = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "checkpoint": _checkpoint,
    "remat2": _checkpoint,
    "shard_map": _shard_map,
}
