"""A small GPT by Megatron-Core: tensor and data parallelism, its schedule and optimizer."""

import argparse
import os

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

VOCABULARY, SEQUENCE, BATCH = 128, 16, 2


def build_model() -> DistributedDataParallel:
    config = TransformerConfig(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
    )
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=SEQUENCE,
    ).cuda()
    wrapping = DistributedDataParallelConfig(overlap_grad_reduce=False)
    return DistributedDataParallel(config, wrapping, model)


def batches():
    """Each data parallel rank draws its own samples, the same on all of its tensor ranks."""
    drawn = torch.Generator().manual_seed(parallel_state.get_data_parallel_rank())
    position = torch.arange(SEQUENCE).expand(BATCH, -1).cuda()
    mask = torch.ones(BATCH, 1, SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1).cuda()
    while True:
        text = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), generator=drawn).cuda()
        yield {
            "tokens": text[:, :-1],
            "labels": text[:, 1:],
            "position_ids": position,
            "attention_mask": mask,
        }


def loss_of(losses: torch.Tensor):
    loss = losses.float().mean()
    logged = loss.detach().clone()
    dist.all_reduce(logged, group=parallel_state.get_data_parallel_group())
    return loss, {"loss": logged / parallel_state.get_data_parallel_world_size()}


def forward_step(data, model):
    batch = next(data)
    output = model(
        batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"]
    )
    return output, loss_of


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=options.tp)
    tensor_parallel.model_parallel_cuda_manual_seed(1234)

    model = build_model()
    settings = OptimizerConfig(optimizer="adam", lr=1e-3, clip_grad=1.0)
    optimizer = get_megatron_optimizer(settings, [model])
    forward_backward = get_forward_backward_func()
    data = batches()
    for step in range(options.steps):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = forward_backward(
            forward_step_func=forward_step,
            data_iterator=data,
            model=model,
            num_microbatches=1,
            seq_length=SEQUENCE,
            micro_batch_size=BATCH,
            forward_only=False,
        )
        updated, norm, _ = optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {losses[0]['loss']:.4f}, norm {norm:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
