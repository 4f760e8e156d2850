"""The programs of the stages of a pipeline as one program, which the ranks of one stage would run.

Ranks that send what they make of what they receive run programs of their own. Joined, each
operation runs when its rank comes to it, what is received is what was sent, and a collective over
stages is arithmetic on what each of them has. The axes along which stages lie have one rank; along
the others every type is carried from stage to stage.
"""

import collections
import itertools
import math
import pathlib
import re

from . import ownops
from .document import numbered, text
from .ranks import coordinate


class Apart(Exception):
    """Why the programs of ranks are not joined."""


class Line:
    """The ranks that run the stages, one each, and where all ranks lie without the axes of
    stages."""

    def __init__(self, axes: list, members: list[int]):
        """`axes`: names, sizes and strides; `members`: ranks that messages connect."""
        self.members = members
        self._axes = [(name, size, stride) for name, size, stride in axes if size > 1]
        self.along = {
            name for name, *axis in self._axes if len({coordinate(r, *axis) for r in members}) > 1
        }
        here = {name: coordinate(members[0], *axis) for name, *axis in self._axes}
        line = [
            rank
            for rank in range(math.prod(size for _, size, _ in self._axes))
            if all(
                coordinate(rank, *axis) == here[name]
                for name, *axis in self._axes
                if name not in self.along
            )
        ]
        if line != members:
            ranks = ", ".join(map(str, members))
            raise Apart(f"messages connect ranks {ranks}, which do not lie along axes of the mesh")

    def without_stages(self, scale: str) -> str:
        """A scale in which the sizes of the axes of stages are numbers: along these axes a program
        of all stages has one rank."""
        sizes = {name: str(size) for name, size, _ in self._axes if name in self.along}
        return re.sub(r"[^\W\d]\w*", lambda found: sizes.get(found[0], found[0]), scale)

    @property
    def kept(self) -> list[tuple[str, int, int]]:
        """The other axes, outermost first, with the strides that are left to them."""
        found, stride = [], 1
        for name, size, _ in sorted(self._axes, key=lambda axis: axis[2]):
            if name not in self.along:
                found.append((name, size, stride))
                stride *= size
        return found[::-1]

    def stage(self, rank: int) -> int:
        """The member that runs the same stage as a rank."""
        moved = sum(
            (coordinate(rank, size, stride) - coordinate(self.members[0], size, stride)) * stride
            for name, size, stride in self._axes
            if name in self.along
        )
        return self.members[0] + moved

    def within(self, rank: int) -> int:
        """The number of a rank among those of its stage."""
        old = {name: axis for name, *axis in self._axes}
        return sum(coordinate(rank, *old[name]) * stride for name, _, stride in self.kept)

    def ranks_along(self, names: list[str], rank: int) -> list[int]:
        axes = [
            (size, stride) for name in names for other, size, stride in self._axes if other == name
        ]
        base = rank - sum(coordinate(rank, *axis) * axis[1] for axis in axes)
        steps = itertools.product(*(range(size) for size, _ in axes))
        return [base + sum(n * stride for n, (_, stride) in zip(step, axes)) for step in steps]

    def axes_within(self, numbers: list[int]) -> list[str] | None:
        """The kept axes along which some ranks of a stage lie, by their numbers in it."""
        for count in range(len(self.kept) + 1):
            for chosen in itertools.combinations(self.kept, count):
                steps = itertools.product(*(range(size) for _, size, _ in chosen))
                base = numbers[0] - sum(
                    coordinate(numbers[0], size, s) * s for _, size, s in chosen
                )
                if (
                    sorted(
                        base + sum(n * s for n, (_, _, s) in zip(step, chosen)) for step in steps
                    )
                    == numbers
                ):
                    return [name for name, *_ in chosen]
        return None


def connected(rank: int, logs: dict[int, list[dict]]) -> list[int]:
    """The ranks that messages connect with one, by what each sends and receives."""
    found, todo = {rank}, [rank]
    while todo:
        peers = {row["peer"] for row in logs[todo.pop()]} - found
        found |= peers
        todo += peers
    return sorted(found)


def join(
    traces: dict[int, pathlib.Path], line: Line, values: dict[int, list[dict]], output: pathlib.Path
) -> int:
    """Writes the program of the stages of a line, by the traces of its ranks; how many operations
    it has. `values`: of each rank, digests of what its step starts from.
    """
    documents = [ownops.read(traces[rank]) for rank in line.members]
    _mark_drifted(documents, [values[rank] for rank in line.members], line)
    joined = _Join(line, documents).document()
    output.write_text(text(joined), encoding="utf-8")
    return joined["op_count"]


def _has_group(op: dict) -> bool:
    return isinstance(op.get("attrs", {}).get("group"), str)  # of a group norm it is a number


_LOOKS_UP = "aten.embedding.default"


def _mark_drifted(documents: list[dict], values: list[list[dict]], line: Line) -> None:
    """Notes the tables of words of which another stage has a copy, and no longer the same.

    Two parameters that began with equal values are one where one stage looks up in it and the other
    computes with it: stages that draw from one seed have equal parameters that are used alike.
    """
    tables, others = [], []
    for stage, (document, rows) in enumerate(zip(documents, values)):
        digests = {
            row["name"]: (row["initial"], row["digest"]) for row in rows if row["role"] == "param"
        }
        looked_up = {op["in"][0] for op in document["ops"] if op["op"] == _LOOKS_UP}
        for param in document["params"]:
            began, now = (
                digests.get(param["name"], (None, None))
                if param["role"] == "param"
                else (None, None)
            )
            if began is not None and not str(began).startswith("?"):
                (tables if param["id"] in looked_up else others).append((stage, began, now, param))
    for (stage, began, now, table), (other, *there, _) in itertools.product(tables, others):
        if stage != other and began == there[0] and now != there[1]:
            table["drifted"] = sorted(line.along)


class _Stage:
    """The program of one rank, with names and numbers that are its own among all stages."""

    def __init__(self, number: int, document: dict, line: Line, tables: "_Tables"):
        self.rank = line.members[number]
        self.number, self.groups, self.contexts = number, document["groups"], document["contexts"]
        self._line, self._tables = line, tables
        self._first_loc, self._first_scope = tables.add(document)
        self.functions = {
            f"{name}.{number}": body for name, body in document.get("functions", {}).items()
        }
        self.params = [self._value(one) for one in document["params"]]
        self.outputs = [self._value(one) for one in document["outputs"]]
        self.ops = collections.deque(self._op(one) for one in document["ops"])
        self.expected: dict[
            str, tuple[dict, tuple, int]
        ] = {}  # by value: `recv`, whose message, which one
        self.calls: collections.Counter = (
            collections.Counter()
        )  # of groups that several stages are in

    def own(self, item):
        """The name of a value, or a list of what an operation takes."""
        if isinstance(item, str):
            return f"{item}.{self.number}"
        return [self.own(one) for one in item] if isinstance(item, list) else item

    def _placed(self, entry: dict) -> dict:
        entry = dict(entry)
        if "loc" in entry:
            entry["loc"] += self._first_loc
        if "scope" in entry:
            entry["scope"] += self._first_scope
        return entry

    def _value(self, entry: dict) -> dict:
        entry = self._line_alone(self._placed(entry))
        named = {
            key: self.own(entry[key])
            for key in ("id", "grad_of", "alias_of", "value", "of")
            if key in entry
        }
        return entry | named

    def _line_alone(self, claims: dict) -> dict:
        """What is claimed of a value, but along the axes of stages."""
        along, kept = self._line.along, dict(claims)
        if "type" in kept:
            kept["type"] = {axis: kind for axis, kind in kept["type"].items() if axis not in along}
        for key in ("observed", "separate", "taken"):
            if key in kept:
                kept[key] = [axis for axis in kept[key] if axis not in along]
        for key in ("grad", "step"):
            if isinstance(kept.get(key), dict):
                kept[key] = self._line_alone(kept[key])
        if any(axis in along for entry in kept.get("spec") or [] for axis in _axes(entry)):
            raise Apart(f"a stage has blocks of {kept.get('name', 'a value')}")
        return kept

    def _op(self, entry: dict) -> dict:
        op = self._placed(entry)
        for key in ("in", "bwd_of"):
            if key in op:
                op[key] = self.own(op[key])
        if "kw" in op:
            op["kw"] = {key: self.own(one) for key, one in op["kw"].items()}
        if "out" in op:
            op["out"] = [self._value(one) for one in op["out"]]
        if "regions" in op:
            op["regions"] = {key: f"{name}.{self.number}" for key, name in op["regions"].items()}
        if "attrs" in op:
            op["attrs"] = {key: self._word(key, one) for key, one in op["attrs"].items()}
        return op | {"ctx": self._tables.context(self.contexts[op.pop("ctx", 0)])}

    def _word(self, key: str, word):
        if key in ("counts_equal", "counts_differ", "alone"):
            return [axis for axis in word if axis not in self._line.along]
        if key == "by" and isinstance(word, str):
            return self._line.without_stages(word)
        return word


def _axes(entry) -> list[str]:
    return entry if isinstance(entry, list) else [] if entry is None else [entry]


class _Tables:
    """Files, places, scopes and contexts of all stages."""

    def __init__(self):
        self.files: list[dict] = []
        self.locs: list[dict] = []
        self.scopes: list = []
        self.contexts: list[dict] = []

    def add(self, document: dict) -> tuple[int, int]:
        """The places at which those of a document begin."""
        files = []
        for one in document["files"]:
            if one not in self.files:
                self.files.append(one)
            files.append(self.files.index(one))
        first_loc, first_scope = len(self.locs), len(self.scopes)
        for one in document["locs"]:
            moved = {"file": files[one["file"]]} if "file" in one else {}
            moved |= {"caller": one["caller"] + first_loc} if "caller" in one else {}
            self.locs.append(one | moved)
        self.scopes += document.get("scopes", [])
        return first_loc, first_scope

    def context(self, context: dict) -> int:
        if context not in self.contexts:
            self.contexts.append(context)
        return self.contexts.index(context)


class _Join:
    """The operations of all stages in an order in which they may run."""

    def __init__(self, line: Line, documents: list[dict]):
        self.line, self._first = line, documents[0]
        self.tables = _Tables()
        self.stages = [
            _Stage(n, document, line, self.tables) for n, document in enumerate(documents)
        ]
        self.ops: list[dict] = []
        self.groups: dict[str, dict] = {}
        self._sent: dict[tuple, list[str]] = collections.defaultdict(
            list
        )  # by sender, receiver, tag
        self._shapes: dict[str, tuple] = {}  # by value: type of elements, extents
        self._makers: dict[str, dict] = {}  # by value: the operation that makes it
        self._made = 0  # values that no stage has
        self._symbols: dict = {}
        for document in documents:
            self._symbols |= document.get("symbols", {})

    def document(self) -> dict:
        self._run()
        first, kept = (
            self._first,
            {name: {"size": size, "stride": s} for name, size, s in self.line.kept},
        )
        world = math.prod(axis["size"] for axis in kept.values())
        alone = {"size": 1, "stride": world}
        axes = [
            axis | kept.get(axis["name"], alone)
            for axis in first["meshes"][0]["axes"]
            if "of" not in axis
        ]
        params = [one for stage in self.stages for one in self._named(stage)]
        outputs = [one for stage in self.stages for one in stage.outputs]
        functions = {name: body for stage in self.stages for name, body in stage.functions.items()}
        result = {key: first[key] for key in ("format", "version", "producer", "mode")}
        result |= {"phase": first["phase"], "world": world}
        result |= {"rank": self.line.within(self.line.members[0]), "op_count": len(self.ops)}
        result |= {"symbols": self._symbols} if self._symbols else {}
        result |= {
            "meshes": [{"id": first["meshes"][0]["id"], "axes": axes}],
            "groups": self.groups,
        }
        result |= {
            "files": self.tables.files,
            "locs": self.tables.locs,
            "scopes": self.tables.scopes,
        }
        result |= {"functions": functions} if functions else {}
        result |= {"contexts": self.tables.contexts, "params": params, "outputs": outputs}
        return numbered(result | {"ops": self.ops})

    def _named(self, stage: _Stage) -> list[dict]:
        """The values that a stage starts from; names that several stages have say which one it
        is."""
        names = collections.Counter(
            name for one in self.stages for name in {p["name"] for p in one.params}
        )
        found = []
        for param in stage.params:
            own = names[param["name"]] > 1
            found.append(
                param | ({"name": f"stages.{stage.number}.{param['name']}"} if own else {})
            )
        return found

    # The order.

    def _run(self) -> None:
        for stage in self.stages:
            for param in stage.params:
                self._note(param)
        todo = True
        while todo:
            todo = False
            for stage in self.stages:
                while stage.ops and self._step(stage):
                    todo = True
        if any(stage.ops for stage in self.stages):
            raise Apart("the stages wait for each other")
        for stage in self.stages:  # what is received and not used
            self._arrived(stage, list(stage.expected))

    def _step(self, stage: _Stage) -> bool:
        """Runs the next operation of a stage, or says that it has to wait."""
        op = stage.ops[0]
        if op["op"] == "recv":
            attrs = op["attrs"]
            key = (attrs["peer"], stage.rank, attrs.get("tag", 0))
            stage.calls[key] += 1
            stage.expected[op["out"][0]["id"]] = (op, key, stage.calls[key] - 1)
            stage.ops.popleft()
            return True
        if not self._arrived(stage, _operands(op)):
            return False
        if op["op"] == "send":
            attrs = op["attrs"]
            self._sent[stage.rank, attrs["peer"], attrs.get("tag", 0)].append(op["in"][0])
        elif (group := self._group_of(op, stage)) is None or len(group[0]) == 1:
            self._add(self._along_kept(op, stage, group))
        elif not self._together(op, stage, group):
            return False
        if stage.ops and stage.ops[0] is op:
            stage.ops.popleft()
        return True

    def _arrived(self, stage: _Stage, values: list[str]) -> bool:
        """Whether what is used here has been sent; then it is what was sent."""
        for value in values:
            if value not in stage.expected:
                continue
            op, key, which = stage.expected[value]
            if len(self._sent[key]) <= which:
                return False
            source, (out,) = self._sent[key][which], op["out"]
            if self._shapes[source][0] != out["dtype"]:
                raise Apart(f"{self._shapes[source][0]} is received as {out['dtype']}")
            if list(self._shapes[source][1]) != out["shape"]:
                source = self._make(
                    op, "aten.reshape.default", [source], out["shape"], {"shape": out["shape"]}
                )
            del stage.expected[value]
            claims = {key: one for key, one in out.items() if key != "type"}
            where = ownops.where(op)
            if "grad_of" in out:
                where["phase"] = "bwd"
            elif out.get("requires_grad"):
                where["ctx"] = self._attach(source, where["ctx"])
            self._add({"op": "wait", "in": [source], "out": [claims]} | where)
        return True

    def _attach(self, value: str, context: int) -> int:
        """Autograd ends where a stage sends a value, and begins anew where it arrives: together
        they are one program, whose gradients the stages send back. Returns a context with
        gradients.
        """
        grad = {key: one for key, one in self.tables.contexts[context].items() if key != "grad"}
        context = self.tables.context(grad)
        while (op := self._makers.get(value)) is not None:
            detaches = op["op"] == "aten.detach.default"
            names = _operands(op)
            if op["out"][0].get("requires_grad", not detaches):
                break
            if len(names) != 1 or len(op["out"]) != 1 or "phase" in op:
                break
            op["out"][0].pop("requires_grad", None)
            op["ctx"] = context
            if detaches:
                op["op"] = "aten.alias.default"
            (value,) = names
        return context

    def _add(self, op: dict) -> None:
        for out in op.get("out", []):
            self._note(out)
            self._makers[out["id"]] = op
        self.ops.append(op)

    def _note(self, value: dict) -> None:
        self._shapes[value["id"]] = (value["dtype"], value["shape"])

    def _make(self, at: dict, name: str, ins: list, shape: list, attrs: dict | None = None) -> str:
        """A value that no stage has by itself."""
        self._made += 1
        made = {
            "id": f"%made.{self._made}",
            "dtype": self._shapes[_first(ins)][0],
            "shape": list(shape),
        }
        self._add(
            {"op": name, "in": ins}
            | ({"attrs": attrs} if attrs else {})
            | {"out": [made]}
            | ownops.where(at)
        )
        return made["id"]

    # Collectives.

    def _group_of(self, op: dict, stage: _Stage) -> tuple[list[int], list[str]] | None:
        """The members of the line that are in the group of a collective, in its order, and the
        other axes along which it runs; None of what is none.
        """
        attrs = op.get("attrs", {})
        if not _has_group(op):
            words = [
                axis
                for key in ("axis", "axes", "by")
                for axis in _axes(attrs.get(key))
                if axis in self.line.along
            ]
            if words:
                raise Apart(f"{op['op']} runs along {', '.join(words)}")
            return None
        entry = stage.groups[attrs["group"]]
        ranks = entry.get("ranks") or self.line.ranks_along(entry["axes"], stage.rank)
        members = [rank for rank in ranks if rank in self.line.members]
        within = self.line.axes_within(sorted({self.line.within(rank) for rank in ranks}))
        if within is None and len(members) == 1:
            return members, []
        if within is None or {self.line.stage(rank) for rank in ranks} != set(members):
            raise Apart(f"a group of ranks {', '.join(map(str, ranks))} does not lie along axes")
        return members, within

    def _along_kept(self, op: dict, stage: _Stage, group) -> dict:
        """An operation of one stage, whose group is one of the axes that are left."""
        if group is None:
            return op
        name, (_, axes) = op["attrs"]["group"], group
        entry = stage.groups[name]
        if "ranks" in entry:
            entry = {"ranks": [self.line.within(rank) for rank in entry["ranks"]]}
        elif axes:
            entry = entry | {"axes": axes}
        return op | {"attrs": op["attrs"] | {"group": self._group(name, entry)}}

    def _group(self, name: str, entry: dict) -> str:
        while self.groups.setdefault(name, entry) != entry:
            name += "'"
        return name

    def _together(self, op: dict, stage: _Stage, group: tuple) -> bool:
        """A collective that several stages call: once all of them have come to it."""
        members, axes = group
        name = op["attrs"]["group"]
        calls: dict[int, tuple[_Stage, dict]] = {}
        for other in self.stages:
            if other.rank not in members or not other.ops:
                continue
            there = other.ops[0]
            if self._same_call(there, other, members, op) and self._arrived(
                other, _operands(there)
            ):
                calls[other.rank] = (other, there)
        if len(calls) < len(members):
            return False
        pairs = [calls[rank] for rank in members]
        kind = op["op"].rstrip("_")
        if kind not in _ARITHMETIC:
            raise Apart(f"{op['op']} among stages is no arithmetic")
        for (other, there), value in zip(pairs, _ARITHMETIC[kind](self, pairs, axes, name)):
            self._give(there, value)
            other.ops.popleft()
        return True

    def _same_call(self, op: dict, stage: _Stage, members: list[int], like: dict) -> bool:
        if op["op"] != like["op"] or not _has_group(op):
            return False
        group = self._group_of(op, stage)
        return group is not None and group[0] == members

    def _give(self, op: dict, value: str) -> None:
        """What a collective of several stages leaves with one of them."""
        (out,) = op["out"]
        into = op.get("kw", {}).get("out") or (op["in"][0] if op.get("mut") else None)
        if into is None:
            self._add({"op": "wait", "in": [value], "out": [out]} | ownops.where(op))
        else:
            self._add(
                {"op": "aten.copy_.default", "in": [into, value], "out": [out], "mut": [0]}
                | ownops.where(op)
            )

    def reduced(self, pairs: list, axes: list[str], name: str) -> list[str]:
        op = pairs[0][1]
        reduction = op["attrs"]["op"]
        if reduction not in _REDUCED:
            raise Apart(f"a reduction by {reduction} among stages is no arithmetic")
        values = [_first(one["in"]) for _, one in pairs]
        shape, total = self._shapes[values[0]][1], values[0]
        for value in values[1:]:
            total = self._make(op, _REDUCED[reduction], [total, value], shape)
        if reduction == "avg":
            total = self._make(op, "aten.div.Tensor", [total, len(values)], shape)
        return [self._along(op, total, axes, name, {"op": reduction})] * len(pairs)

    def sent_by_root(self, pairs: list, axes: list[str], name: str) -> list[str]:
        stage, op = pairs[0]
        entry = stage.groups[op["attrs"]["group"]]
        ranks = entry.get("ranks") or self.line.ranks_along(entry["axes"], stage.rank)
        root = ranks[op["attrs"]["root"]]
        (source,) = [_first(one["in"]) for of, one in pairs if of.rank == self.line.stage(root)]
        numbers = sorted({self.line.within(rank) for rank in ranks})
        words = {"root": numbers.index(self.line.within(root))}
        return [self._along(op, source, axes, name, words)] * len(pairs)

    def gathered(self, pairs: list, axes: list[str], name: str) -> list[str]:
        op = pairs[0][1]
        if axes or op["attrs"].get("dim", 0) != 0:
            raise Apart(f"{op['op']} among stages and along {', '.join(axes)}")
        values = [_first(one["in"]) for _, one in pairs]
        rows = sum(self._shapes[value][1][0] for value in values)
        shape = [rows, *self._shapes[values[0]][1][1:]]
        return [self._make(op, "aten.cat.default", [values], shape)] * len(pairs)

    def _along(self, op: dict, value: str, axes: list[str], name: str, words: dict) -> str:
        """The same collective among the ranks of each stage."""
        if not axes:
            return value
        mesh = self._first["meshes"][0]["id"]
        attrs = {"group": self._group(name, {"mesh": mesh, "axes": axes})} | words
        return self._make(op, op["op"].rstrip("_"), [value], self._shapes[value][1], attrs)


_REDUCED = {"sum": "aten.add.Tensor", "avg": "aten.add.Tensor", "prod": "aten.mul.Tensor"}
_REDUCED |= {"max": "aten.maximum.default", "min": "aten.minimum.default"}
_ARITHMETIC = {
    "all_reduce": _Join.reduced,
    "broadcast": _Join.sent_by_root,
    "all_gather": _Join.gathered,
}


def _first(ins: list) -> str:
    """The first value among operands."""
    return _names(ins)[0]


def _names(items) -> list[str]:
    if isinstance(items, str):
        return [items]
    return [name for one in items for name in _names(one)] if isinstance(items, list) else []


def _operands(op: dict) -> list[str]:
    return _names([op.get("in", []), list(op.get("kw", {}).values())])
