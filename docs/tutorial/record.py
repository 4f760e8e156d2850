"""Records one step of a training script (docs/tutorial.md): `python record.py train
step.spmd.json`."""

import importlib
import sys

from spmd_trace.torch import Axis, Mesh, Recorder, dumps, reinterpret  # before torch
from spmd_trace.torch.frameworks.cpu import fake_ranks
import torch

script, out = sys.argv[1:]
train = importlib.import_module(script)

RANKS = 4
with fake_ranks(0, RANKS):  # this process is rank 0 of 4; the other ranks do not exist
    model = train.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 16), torch.randn(8, 4)

    # What is given: the mesh, and the kind of each input and parameter on its axes.
    recorder = Recorder(Mesh("main", [Axis("dp", RANKS, 1, "data")]))
    for name, data in {"x": x, "y": y}.items():
        recorder.declare(data, "input", name, type={"dp": "V"}, spec=["dp", None])
    for name, weight in model.named_parameters():
        recorder.declare(weight, "param", name, type={"dp": "R"})

    with recorder.recording(model):
        loss = train.loss_of(model, x, y)
        # The losses of the ranks are parts of one loss.
        loss = reinterpret(loss, "dp", src="V", dst="P")
        recorder.backward(loss)
        with recorder.section("optimizer", "opt"):
            train.update(model, optimizer)
        recorder.output(loss, "loss")

with open(out, "w", encoding="utf-8") as file:
    file.write(dumps(recorder.program))
