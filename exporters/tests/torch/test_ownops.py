"""Operations that some ranks run and others do not."""

import json

from spmd_trace import ownops


def _trace(folder, rank, added):
    """Norms of three parameters, of which a rank adds some up."""
    params = [
        {"id": f"%{i}", "role": "param", "shape": [4, i + 1], "dtype": "f32"} for i in range(3)
    ]
    params.append({"id": "%t", "role": "const", "shape": [], "dtype": "f32"})
    ops, total = [], "%t"
    for place in added:
        norm, new = f"%n{place}", f"%s{place}"
        ops.append(
            {"op": "aten.norm", "in": [f"%{place}"], "out": [{"id": norm, "shape": []}], "loc": 0}
        )
        ops.append(
            {"op": "aten.add_", "in": [total, norm], "out": [{"id": new, "shape": []}], "loc": 0}
        )
        total = new
    ops.append({"op": "all_reduce_", "in": [total], "out": [{"id": "%all", "shape": []}], "loc": 1})
    locs = [{"file": 0, "line": 7, "col": 3}, {"file": 0, "line": 9, "col": 3}]
    path = folder / f"{rank}.json"
    path.write_text(json.dumps({"params": params, "locs": locs, "files": ["a.py"], "ops": ops}))
    return path


def _types(path):
    ops = json.loads(path.read_text())["ops"]
    return {out["id"]: out["type"] for op in ops for out in op.get("out", []) if "type" in out}


def _alone(path):
    ops = json.loads(path.read_text())["ops"]
    marks = ((op["out"][0]["id"], op.get("attrs", {}).get("alone")) for op in ops if "out" in op)
    return {one: axes for one, axes in marks if axes}


def test_what_one_of_three_ranks_lacks_is_of_no_known_type(tmp_path):
    traces = {rank: _trace(tmp_path, rank, [0, 1] if rank < 2 else [0]) for rank in range(3)}
    assert ownops.mark(traces[0], 0, ownops.Steps(traces), [["tp", 3, 1]]) == 2
    assert _types(traces[0]) == {"%n1": {"tp": "?"}, "%s1": {"tp": "?"}}
    assert not _alone(traces[0])


def test_what_is_read_on_is_of_no_known_type(tmp_path):
    traces = {0: _trace(tmp_path, 0, [0, 1]), 1: _trace(tmp_path, 1, [0])}
    for rank, norm in ((0, "%n1"), (1, "%n0")):
        document = json.loads(traces[rank].read_text())
        read = {"op": "aten.exp", "in": [norm], "out": [{"id": "%e", "shape": []}], "loc": 1}
        document["ops"].append(read)
        traces[rank].write_text(json.dumps(document))
    ownops.mark(traces[0], 0, ownops.Steps(traces), [["tp", 2, 1]])
    assert "%n1" in _types(traces[0]) and not _alone(traces[0])


def test_what_one_rank_alone_adds_up_is_an_addend(tmp_path):
    traces = {0: _trace(tmp_path, 0, [0, 1, 2]), 1: _trace(tmp_path, 1, [0, 2])}
    assert ownops.mark(traces[0], 0, ownops.Steps(traces), [["tp", 2, 1]]) == 2
    assert not _types(traces[0]), "an addend, of which the others have zero"
    assert _alone(traces[0]) == {"%s1": ["tp"]}
    assert ownops.mark(traces[1], 1, ownops.Steps(traces), [["tp", 2, 1]]) == 0


def test_only_the_axis_along_which_ranks_differ_is_named(tmp_path):
    traces = {rank: _trace(tmp_path, rank, [0, 1] if rank < 2 else [0]) for rank in range(4)}
    axes = [["dp", 2, 2], ["tp", 2, 1]]
    assert ownops.mark(traces[1], 1, ownops.Steps(traces), axes) == 2
    assert _alone(traces[1]) == {"%s1": ["dp"]} and not _types(traces[1])


def test_equal_programs_stay_as_they_are(tmp_path):
    traces = {rank: _trace(tmp_path, rank, [0, 1]) for rank in range(2)}
    before = traces[0].read_text()
    assert ownops.mark(traces[0], 0, ownops.Steps(traces), [["tp", 2, 1]]) == 0
    assert traces[0].read_text() == before


def test_operations_look_the_same_whatever_inputs_are_called(tmp_path):
    traces = {rank: _trace(tmp_path, rank, [0]) for rank in range(2)}
    steps = ownops.Steps(traces)
    document = json.loads(traces[0].read_text())
    for one in document["params"]:
        one["role"], one["name"] = "input", f"other run {one['id']}"
    assert steps.rows_of(document) == steps.rows[0] == steps.rows[1]


def test_what_one_rank_reads_for_itself_makes_nothing(tmp_path):
    traces = {rank: _trace(tmp_path, rank, [0]) for rank in range(2)}
    document = json.loads(traces[0].read_text())
    number = {"op": "aten._local_scalar_dense", "in": ["%s0"], "loc": 1}
    document["ops"].append(number)
    traces[0].write_text(json.dumps(document))
    assert ownops.mark(traces[0], 0, ownops.Steps(traces), [["tp", 2, 1]]) == 1
    assert not _types(traces[0]) and not _alone(traces[0])


def _listed(folder, rank, normed, read=()):
    """Norms of parameters, as many as a rank takes, in a list whose norm is read by all."""
    params = [
        {"id": f"%{i}", "role": "param", "shape": [4, i + 1], "dtype": "f32"} for i in range(3)
    ]
    norm = "aten.linalg_vector_norm.default"
    ops = [
        {"op": norm, "in": [f"%{i}"], "out": [{"id": f"%n{i}", "shape": []}], "loc": 0}
        for i in normed
    ]
    names = [f"%n{i}" for i in normed]
    ops.append({"op": "aten.stack.default", "in": [names], "out": [{"id": "%l", "shape": [3]}]})
    ops[-1]["out"][0]["shape"] = [len(names)]
    ops.append({"op": norm, "in": ["%l"], "out": [{"id": "%a", "shape": []}], "loc": 1})
    ops += [{"op": "aten.exp", "in": [one], "out": [{"id": "%e", "shape": []}]} for one in read]
    path = folder / f"{rank}.json"
    locs = [{"file": 0, "line": 7, "col": 3}, {"file": 0, "line": 9, "col": 3}]
    path.write_text(json.dumps({"params": params, "locs": locs, "files": ["a.py"], "ops": ops}))
    return path


def test_a_norm_that_one_rank_alone_puts_into_a_list_is_an_addend(tmp_path):
    traces = {0: _listed(tmp_path, 0, [0, 1, 2]), 1: _listed(tmp_path, 1, [0, 2])}
    assert ownops.mark(traces[0], 0, ownops.Steps(traces), [["tp", 2, 1]]) == 1
    assert _alone(traces[0]) == {"%n1": ["tp"]} and not _types(traces[0])


def test_a_norm_that_is_read_elsewhere_or_on_other_ranks_is_none(tmp_path):
    traces = {0: _listed(tmp_path, 0, [0, 1, 2], ["%n1"]), 1: _listed(tmp_path, 1, [0, 2], ["%n0"])}
    ownops.mark(traces[0], 0, ownops.Steps(traces), [["tp", 2, 1]])
    assert "%n1" in _types(traces[0]) and not _alone(traces[0])
    traces = {rank: _listed(tmp_path, rank, [0, 1] if rank < 2 else [0]) for rank in range(3)}
    ownops.mark(traces[0], 0, ownops.Steps(traces), [["tp", 3, 1]])
    assert _types(traces[0]) == {"%n1": {"tp": "?"}} and not _alone(traces[0])
