"""Steps of the frameworks in settings that are not bundled: the checker finds nothing in them."""

import pytest

import of_one_torch  # noqa: F401  what is kept is of one version
import judged
import spmd_trace.torch
from spmd_trace.torch.programs import megatron_gpt, torchtitan_models
from spmd_trace.torch.programs.megatron_gpt import Config, dropless, with_capacity

pytestmark = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT does not name a checker")

_PER_TOKEN = {"settings": {"calculate_per_token_loss": True}}
_TIED = {"model": {"share_embeddings_and_output_weights": True}}
_MEGATRON = {
    "sum over tokens": Config(sequence_parallel=True, layers=1, **_PER_TOKEN),
    "average in collective": Config(layers=1, wrapper={"average_in_collective": True}),
    "context parallel": Config(layers=1, heads=0, context_parallel=2, tensor_parallel=2),
    "shared embedding": Config(sequence_parallel=True, layers=1, **_TIED),
    "stages": Config(layers=1, pipeline_parallel=2, tensor_parallel=2),
    "experts, sum over tokens": dropless(layers=1, **_PER_TOKEN),
    "experts, average": with_capacity(layers=1, wrapper={"average_in_collective": True}),
}
_EXPERTS = {"data_parallel": 4, "tensor_parallel": 2, "expert_parallel": 4}
_TORCHTITAN = {
    "llama3, whole weights in use": {"data_parallel": 4, "tensor_parallel": 1},
    "llama3 on eight": {"data_parallel": 4, "tensor_parallel": 2},
    "deepseek without experts apart": {"model": "deepseek_v3", "tensor_parallel": 2},
    "deepseek, whole sequences": {"model": "deepseek_v3", **_EXPERTS},
    "gpt_oss, whole sequences": {"model": "gpt_oss", "layers": 1, **_EXPERTS},
}


def check(program, path) -> None:
    path.write_text(spmd_trace.torch.dumps(program))
    assert judged.reports(path) == []


@pytest.mark.parametrize("name", _MEGATRON)
def test_a_megatron_step_is_clean(name, tmp_path):
    check(megatron_gpt.record(_MEGATRON[name]), tmp_path / "step.spmd.json")


@pytest.mark.parametrize("name", _TORCHTITAN)
def test_a_torchtitan_step_is_clean(name, tmp_path):
    config = torchtitan_models.Config(**_TORCHTITAN[name])
    check(torchtitan_models.record(config).program, tmp_path / "step.spmd.json")
