"""What a step computes: spmdrun executes it on virtual ranks, with real numbers."""

import array
import json
import math
import mmap
import os
import struct
import subprocess

WORDS = {"F64": "d", "F32": "f", "I64": "q", "I32": "i"}


class Values:
    """Element type, extents and bytes by name, of a .safetensors file; read where they are asked
    for."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        size = struct.unpack("<Q", self.data[:8])[0]
        self.header, self.first = json.loads(self.data[8 : 8 + size]), 8 + size

    def get(self, name):
        at = self.header.get(name)
        if not at:
            return (None, None, None)
        begin, end = at["data_offsets"]
        return at["dtype"], at["shape"], self.data[self.first + begin : self.first + end]


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        place = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class NotRun(Exception):
    """Why a step was not executed."""


class Runner:
    """Runs steps of one recording with one set of numbers."""

    def __init__(self, spmdrun, folder, trace, seed):
        self.spmdrun, self.folder, self.seed = spmdrun, folder, seed
        self.ranks = math.prod(axis.get("size", 1) for axis in trace["meshes"][0]["axes"])
        self.given, self.types = {}, {param["id"][1:]: param["type"] for param in trace["params"]}
        self.trained = {}
        for output in trace["outputs"]:
            if output.get("of") and output["role"] in ("state", "grad"):
                self.trained.setdefault(output["of"], [])
        params = {param["id"]: param for param in trace["params"]}
        self.trained = {id: [] for id in self.trained if params[id]["role"] == "param"}
        self.give(trace, [param for param in params.values() if param["role"] != "param"])

    def values(self, trace, until_inputs=False):
        """What each rank has of each value, or of the inputs alone."""
        unchecked = [{**each, "check": False} for each in trace["contexts"]]
        outputs = [output for output in trace["outputs"] if output.get("of")]
        trace = {**trace, "contexts": unchecked, "outputs": outputs}
        if until_inputs:
            trace |= {"ops": [], "op_count": 0, "outputs": []}
        program = os.path.join(self.folder, "run.spmd.json")
        out = os.path.join(self.folder, "run.safetensors")
        with open(program, "w", encoding="utf-8") as file:
            json.dump(trace, file)
        line = [self.spmdrun, program, "--isolated", "--check=off", "--tier=real"]
        line += ["--dtype-mode=f64", f"--seed={self.seed}", "--trace-ranks", f"--trace-out={out}"]
        line += [f"--input={self.numbers_for(trace)}"] if self.given else []
        try:
            done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
        except subprocess.TimeoutExpired:
            raise NotRun("it takes long") from None
        if done.returncode:
            said = (done.stderr + done.stdout).strip() or str(done.returncode)
            raise NotRun(said.splitlines()[-1])
        return Values(out)

    def give(self, trace, params):
        """Squares of gradients, decay rates, the noise of a step: numbers between 0 and 1; whole
        numbers that are an index into anything."""
        drawn, given = self.values(trace, until_inputs=True), {}  # they stand for what is drawn
        for param in params:
            name = param["id"][1:]
            dtype, shape, content = drawn.get(name)
            if shape not in (param["shape"], param.get("gshape")):
                continue  # a list of what ranks have
            if dtype == "F64" and param["dtype"] == "f32":
                numbers = [abs(x) / (1 + abs(x)) for x in array.array("d", content)]
                given[name] = ("F32", shape, array.array("f", numbers).tobytes())
            elif dtype == "I64":
                numbers = [abs(x) % 3 for x in array.array("q", content)]
                given[name] = ("I64", shape, array.array("q", numbers).tobytes())
        self.given = given

    def numbers_for(self, trace):
        """A file of those whose type is what it was: of others there are not as many."""
        types = {param["id"][1:]: param["type"] for param in trace["params"]}
        path = os.path.join(self.folder, "given.safetensors")
        write(
            path,
            {name: each for name, each in self.given.items() if types[name] == self.types[name]},
        )
        return path

    def outcome(self, trace):
        """By parameter: what each rank has of its gradient and of its new value."""
        values = self.values(trace)
        results = {id: [] for id in self.trained}
        for output in trace["outputs"]:
            if output.get("of") in results and output["role"] in ("state", "grad"):
                ranks = (f"{output['value'][1:]}@{rank}" for rank in range(self.ranks))
                results[output["of"]] += [values.get(name) for name in ranks]
        return results


def numbers_of(tensor):
    dtype, _, content = tensor
    return array.array(WORDS[dtype], content) if dtype in WORDS else content


def share_of_numbers(tensors):
    """Of the elements that are none but numbers."""
    count = valid = 0
    for tensor in tensors:
        numbers = numbers_of(tensor)
        count += len(numbers)
        valid += sum(math.isfinite(x) for x in numbers)
    return valid / count if count else 0


def same(some, others, tolerance=1e-12):
    """Of two lists of tensors: equal up to rounding, where both are numbers."""
    if len(some) != len(others):
        return False
    for one, other in zip(some, others):
        if one[2] == other[2]:
            continue
        if one[:2] != other[:2]:
            return False
        a, b = numbers_of(one), numbers_of(other)
        largest = max((abs(x) for x in a if math.isfinite(x)), default=0)
        for x, y in zip(a, b):
            if math.isfinite(x) != math.isfinite(y):
                return False
            if math.isfinite(x) and abs(x - y) > tolerance * largest:
                return False
    return True
