"""What people get wrong, as edits of a recorded step. Each kind of edit finds its places; a place
is what it would do, in words, and a function that does it to a copy of the step."""

from steps import bare, phase, reads

EDITS = {}  # by name: of whom it changes what is meant, and what finds the places


def edit(name, changes="ranks"):
    """`ranks`: one device would do the same as before. `model`: it would do something else, too."""

    def add(finder):
        EDITS[name] = (changes, finder)
        return finder

    return add


def is_number(operand):
    return isinstance(operand, (int, float)) and not isinstance(operand, bool)


def at(index, change):
    """A change of the op at a place."""
    return lambda step: change(step, step.ops[index], index)


# --- collectives ----------------------------------------------------------------------------------


def own_blocks(step, op, _):
    """A gather of what the others have becomes the rank's own block, several times."""
    count = step.ranks(step.axes(op))
    step.become(op, "aten.cat.default", [op["in"] * count], dim=op["attrs"].get("dim", 0))


def own_addend(step, op, _):
    attrs = op["attrs"]
    step.become(op, "convert", axis=attr_axes(step.axes(op)), dst=f"S({attrs.get('dim', 0)})")


def attr_axes(axes):
    return axes[0] if len(axes) == 1 else axes


def can_pass(step, op):
    return step.shape(op["in"][0]) == op["out"][0]["shape"]


def left_out(step, op):
    """How a collective is left out; nothing: it cannot be."""
    if bare(op) == "all_gather":
        return own_blocks
    if bare(op) == "reduce_scatter":
        return own_addend
    return (lambda step, op, _: step.is_pass(op)) if can_pass(step, op) else None


def left_out_in(wanted, of_numbers):
    def finder(step):
        for index, op in step.collectives():
            number = not op["out"][0]["shape"]
            change = left_out(step, op)
            if change and phase(op) == wanted and number == of_numbers:
                yield f"no {bare(op)}", at(index, change)

    return finder


for where in ("forward", "backward", "optimizer"):
    edit(f"a collective of the {where} left out")(left_out_in(where, False))
    edit(f"a sum of one number of the {where} left out")(left_out_in(where, True))


def reduction(word):
    def change(_, op, __):
        op["attrs"]["op"] = word

    return change


@edit("a sum for an average")
def sum_for_average(step):
    for index, op in step.collectives("all_reduce", "reduce_scatter"):
        if op["attrs"].get("op") == "avg":
            yield "sum", at(index, reduction("sum"))


@edit("an average for a sum")
def average_for_sum(step):
    for index, op in step.collectives("all_reduce", "reduce_scatter"):
        if op["attrs"].get("op", "sum") == "sum" and step.values[op["in"][0]]["dtype"][0] == "f":
            yield "avg", at(index, reduction("avg"))


@edit("a maximum for a sum")
def maximum_for_sum(step):
    def change(step, op, index):
        reduction("max")(step, op, index)
        op["attrs"].pop("src", None)

    for index, op in step.collectives("all_reduce"):
        if op["attrs"].get("op", "sum") == "sum":
            yield "max", at(index, change)


@edit("the first rank's for a sum")
def broadcast_for_sum(step):
    def change(_, op, __):
        op["op"] = op["op"].replace("all_reduce", "broadcast")
        for word in ("op", "src"):
            op["attrs"].pop(word, None)
        op["attrs"]["root"] = 0

    for index, op in step.collectives("all_reduce"):
        if len(step.axes(op)) == 1:
            yield "broadcast", at(index, change)


@edit("another group")
def other_group(step):
    def over(axes):
        def change(_, op, __):
            op["attrs"].pop("group", None)
            op["attrs"]["axis"] = attr_axes(axes)

        return change

    for index, op in step.collectives():
        axes = step.axes(op)
        others = [[axis] for axis in step.sizes] + [list(step.sizes)]
        for other in others:
            same_blocks = step.ranks(other) == step.ranks(axes) and "root" not in op["attrs"]
            if other != axes and (same_blocks or bare(op) == "all_reduce"):
                yield f"over {' and '.join(other)}", at(index, over(other))


def once_more(word):
    """A reduction of what an op made; all that comes after reads that instead."""

    def change(step, op, index):
        made = op["out"][0]["id"]
        axes = step.axes(op) or list(step.sizes)[:1]
        again = step.insert(index + 1, "all_reduce", made, like=op, axis=attr_axes(axes), op=word)
        step.redirect(made, again, index + 2)

    return change


@edit("a sum taken twice")
def twice(step):
    for index, op in step.collectives("all_reduce", "reduce_scatter"):
        yield "twice", at(index, once_more("sum"))


def makes_floats(op):
    return len(op.get("out", [])) == 1 and op["out"][0]["dtype"][0] in "fb" and op.get("in")


def is_beside_size(step, index):
    """Whether a plain number that is the size of an axis stands there: beside a collective it
    counts as that, whatever it was."""
    made = step.ops[index]["out"][0]["id"]
    near = [step.ops[each] for each in [index, *step.readers.get(made, [])]]
    numbers = [each for op in near for each in op.get("in", []) if is_number(each) and each]
    return any(number in (size, 1 / size) for number in numbers for size in step.sizes.values())


@edit("a sum where there was none")
def extra_sum(step):
    for index, op in enumerate(step.ops):
        if not makes_floats(op) or op.get("mut") or is_beside_size(step, index):
            continue
        if op["out"][0]["dtype"] != "bool":
            for word in ("sum", "avg"):
                yield f"{word} of what {op['op']} makes", at(index, once_more(word))


@edit("a value read before its reduction")
def early(step):
    def change(reader):
        def apply(step, op, index):
            before = step.insert(index, "aten.clone.default", op["in"][0])
            step.redirect(op["out"][0]["id"], before, reader + 1, reader + 2)

        return apply

    for index, op in step.collectives("all_reduce", "broadcast", "all_to_all"):
        if can_pass(step, op):
            for reader in step.readers.get(op["out"][0]["id"], []):
                yield f"by {step.ops[reader]['op']}", at(index, change(reader))


@edit("an operation before the sum, not after it")
def swapped_with_next(step):
    def change(reader):
        def apply(step, op, index):
            after, summed = step.ops[reader], op["out"][0]["id"]
            before = op["in"][0]
            if op.get("mut"):  # the operand is overwritten, and read again
                before = step.insert(index, "aten.clone.default", before)
                after = step.ops[reader + 1]
            at_reader = step.ops.index(after)
            made = after["out"][0]["id"]
            after["in"] = [before if each == summed else each for each in after["in"]]
            words = {key: op["attrs"][key] for key in ("axis", "group", "op") if key in op["attrs"]}
            again = step.insert(at_reader + 1, "all_reduce", made, like=after, **words)
            step.redirect(made, again, at_reader + 2)

        return apply

    for index, op in step.collectives("all_reduce"):
        summed = op["out"][0]["id"]
        for reader in step.readers.get(summed, []):
            after = step.ops[reader]
            if (
                makes_floats(after)
                and not after.get("mut")
                and "alias_of" not in after["out"][0]
                and after["out"][0]["shape"] == step.shape(summed)
                and after["in"].count(summed) == 1
            ):
                yield f"{after['op']} before the sum", at(index, change(reader))


# --- blocks ---------------------------------------------------------------------------------------


@edit("blocks gathered along another dimension")
def gather_dimension(step):
    def change(dim, shape):
        def apply(step, op, index):
            out, was = op["out"][0], op["out"][0]["shape"]
            out["shape"], op["attrs"]["dim"] = shape, dim
            view = step.insert(index + 1, "aten.view.default", out["id"], was, op, size=was)
            step.redirect(out["id"], view, index + 2)

        return apply

    for index, op in step.collectives("all_gather"):
        block, first = step.shape(op["in"][0]), op["attrs"].get("dim", 0)
        for dim in range(len(block)):
            shape = [*block]
            shape[dim] *= step.ranks(step.axes(op))
            if dim != first:
                yield f"along {dim}", at(index, change(dim, shape))


def from_neighbour(step, value, where, axis, like):
    size = step.sizes[axis]
    perm = [[rank, (rank + 1) % size] for rank in range(size)]
    return step.insert(where, "collective_permute", value, like=like, axis=axis, perm=perm)


@edit("blocks in another order")
def block_order(step):
    def change(step, op, index):
        axis = step.axes(op)[0]
        moved = from_neighbour(step, op["in"][0], index, axis, op)
        op["in"] = [moved, *op["in"][1:]]

    for index, op in step.collectives("all_gather", "reduce_scatter", "all_to_all"):
        if not op.get("mut"):
            yield "the neighbour's block", at(index, change)


def own_parts(step):
    """Where a rank takes its block of what all have."""
    for index, op in enumerate(step.ops):
        attrs = op.get("attrs", {})
        takes = bare(op) == "convert" and str(attrs.get("dst", "")).startswith("S(")
        if takes and attrs.get("axis") in step.sizes:
            yield index, op, int(attrs["dst"][2:-1]), attrs["axis"]


def came_from_ranks(step, value):
    """Whether it is a part of what a collective has put side by side."""
    index = step.made_by.get(value)
    if index is None:
        return False
    op = step.ops[index]
    if bare(op) in ("all_gather", "all_to_all"):
        return True
    passes = bare(op) in ("unbind", "split", "chunk", "clone", "detach", "view", "alias")
    return passes and reads(op["in"]) and came_from_ranks(step, reads(op["in"])[-1])


@edit("parts of ranks joined in another order")
def part_order(step):
    def change(first, second):
        def apply(_, op, __):
            parts = op["in"][0]
            parts[first], parts[second] = parts[second], parts[first]

        return apply

    for index, op in enumerate(step.ops):
        parts = op["in"][0] if op.get("in") else None
        if bare(op) in ("cat", "stack") and isinstance(parts, list) and len(parts) > 1:
            shapes = [step.shape(part) for part in parts]
            if shapes[0] == shapes[-1] and all(came_from_ranks(step, part) for part in parts):
                yield f"of {op['op']}", at(index, change(0, len(parts) - 1))


@edit("the first block for the rank's own")
def same_block(step):
    def change(dim, axis):
        def apply(step, op, _):
            end = op["out"][0]["shape"][dim]
            step.become(op, "aten.slice.Tensor", [op["in"][0], dim, 0, end])
            op["out"][0]["alias_of"] = op["in"][0]

        return apply

    for index, _, dim, axis in own_parts(step):
        yield f"along {dim}, on {axis}", at(index, change(dim, axis))


@edit("the neighbour's block for the rank's own")
def next_block(step):
    def change(axis):
        def apply(step, op, index):
            made = op["out"][0]["id"]
            moved = from_neighbour(step, made, index + 1, axis, op)
            step.redirect(made, moved, index + 2)

        return apply

    for index, _, _, axis in own_parts(step):
        yield f"on {axis}", at(index, change(axis))


@edit("a parameter of another rank")
def other_parameter(step):
    def change(value, axis):
        def apply(step):
            first = min(step.readers[value])
            moved = from_neighbour(step, value, first, axis, step.ops[first])
            for reader in step.readers[value]:
                if not step.ops[reader + 1].get("mut") and phase(step.ops[reader + 1]) == "forward":
                    step.redirect(value, moved, reader + 1, reader + 2)

        return apply

    for param in step.trace["params"]:
        readers = step.readers.get(param["id"]) if param["role"] == "param" else None
        if readers and phase(step.ops[min(readers)]) == "forward":
            for axis in step.sizes:
                yield f"{param['name']} on {axis}", change(param["id"], axis)


@edit("a batch that all ranks share")
def same_batch(step):
    def change(axis):
        def apply(step):
            for param in step.trace["params"]:
                if param["role"] == "input":
                    param["type"][axis] = "R"
                    param.pop("spec", None)

        return apply

    inputs = [param for param in step.trace["params"] if param["role"] == "input"]
    for axis in step.sizes:
        if any(param.get("type", {}).get(axis) == "V" for param in inputs):
            yield f"on {axis}", change(axis)


# --- factors --------------------------------------------------------------------------------------


@edit("a factor of a size left out")
def no_factor(step):
    for index, op in enumerate(step.ops):
        if bare(op) == "scale":
            yield f"no {op['attrs']['by']}", at(index, lambda step, op, _: step.is_pass(op))


@edit("another factor of a size")
def other_factor(step):
    def change(by):
        def apply(_, op, __):
            op["attrs"]["by"] = by

        return apply

    for index, op in enumerate(step.ops):
        if bare(op) == "scale":
            was = op["attrs"]["by"]
            for axis in step.sizes:
                for by in (axis, f"1/{axis}", f"{axis}*{axis}", f"1/({axis}*{axis})"):
                    if by != was:
                        yield f"{by} for {was}", at(index, change(by))


@edit("a factor of a size where there was none")
def extra_factor(step):
    def change(by):
        def apply(step, op, index):
            made = op["out"][0]["id"]
            scaled = step.insert(index + 1, "scale", made, like=op, by=by)
            step.redirect(made, scaled, index + 2)

        return apply

    for index, op in enumerate(step.ops):
        if makes_floats(op) and op["out"][0]["dtype"] != "bool" and not op.get("mut"):
            for axis in step.sizes:
                for by in (axis, f"1/{axis}"):
                    yield f"{by} times what {op['op']} makes", at(index, change(by))


@edit("another plain number", changes="model")
def other_number(step):
    def change(place, number):
        def apply(_, op, __):
            op["in"][place] = number

        return apply

    for index, op in enumerate(step.ops):
        for place, operand in enumerate(op.get("in", [])):
            if bare(op) in ("mul", "div") and is_number(operand) and operand:
                for axis, size in step.sizes.items():
                    for number in (operand * size, operand / size, operand - 1, size):
                        words = f"{number} for {operand} beside {axis}"
                        if number not in (0, operand):
                            yield words, at(index, change(place, number))


@edit("a plain number for a factor of a size", changes="model")
def number_for_factor(step):
    def change(number):
        return lambda step, op, _: step.become(op, "aten.mul.Tensor", [op["in"][0], number])

    for index, op in enumerate(step.ops):
        if bare(op) == "scale" and not op.get("mut"):
            for size in step.sizes.values():
                for count in (size - 1, size + 1):
                    yield f"1/{count} for {op['attrs']['by']}", at(index, change(1 / count))


# --- what one device would do otherwise, too ------------------------------------------------------


@edit("a mask left out", changes="model")
def no_mask(step):
    def take(place):
        return lambda step, op, _: step.become(op, "aten.clone.default", [op["in"][place]])

    for index, op in enumerate(step.ops):
        place = {"where": 1, "masked_fill": 0, "tril": 0, "triu": 0}.get(bare(op))
        if place is None or op.get("mut") or not isinstance(op["in"][place], str):
            continue
        if step.shape(op["in"][place]) == op["out"][0]["shape"]:
            yield f"no {op['op']}", at(index, take(place))


@edit("a copy left out", changes="model")
def no_copy(step):
    def change(step, op, index):
        step.become(op, "aten.detach.default")
        # From here on one storage has both names: who reads it sees what was written last.
        last, names = op["out"][0]["id"], {op["in"][0], op["out"][0]["id"]}
        for place in range(index + 1, len(step.ops)):
            each = step.ops[place]
            read = names.intersection(reads([*each.get("in", []), *each.get("kw", {}).values()]))
            for name in read - {last}:
                step.redirect(name, last, place, place + 1)
            made = each["out"][0]["id"] if each.get("out") else None
            if read and each.get("mut") and each["out"][0].get("alias_of") == last:
                last = made
                names.add(made)

    for index, op in enumerate(step.ops):
        if bare(op) == "clone" and can_pass(step, op):
            yield "a view for a copy", at(index, change)


@edit("a slice that begins elsewhere", changes="model")
def other_slice(step):
    def shift(by):
        def change(_, op, __):
            op["attrs"]["start"] += by
            op["attrs"]["end"] += by

        return change

    for index, op in enumerate(step.ops):
        attrs = op.get("attrs", {})
        start, end = attrs.get("start"), attrs.get("end")
        if bare(op) != "slice" or not is_number(start) or not is_number(end) or start < 0:
            continue
        extent = step.shape(op["in"][0])[attrs.get("dim", 0)]
        for by in {1, -1, end - start, start - end}:
            if by and 0 <= start + by and 0 < end + by <= extent:
                yield f"by {by}", at(index, shift(by))


@edit("two operands swapped", changes="model")
def swapped_operands(step):
    def change(_, op, __):
        op["in"][0], op["in"][1] = op["in"][1], op["in"][0]

    for index, op in enumerate(step.ops):
        pair = op.get("in", [])[:2]
        if bare(op) not in ("sub", "div", "mm", "bmm", "matmul") or op.get("mut"):
            continue
        two = reads(pair) == pair and len(set(pair)) == 2
        if two and step.shape(pair[0]) == step.shape(pair[1]):
            yield f"of {op['op']}", at(index, change)


@edit("a gradient of one of several batches", changes="model")
def dropped_addend(step):
    def take(place):
        return lambda step, op, _: step.become(op, "aten.clone.default", [op["in"][place]])

    for index, op in enumerate(step.ops):
        pair = op.get("in", [])[:2]
        if phase(op) == "backward" and bare(op) == "add" and not op.get("mut"):
            for place in (0, 1):
                if reads(pair) == pair and step.shape(pair[place]) == op["out"][0]["shape"]:
                    yield f"operand {place} of {op['op']} alone", at(index, take(place))
