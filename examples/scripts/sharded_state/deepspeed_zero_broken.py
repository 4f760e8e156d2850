"""DeepSpeed: ZeRO stage 2 of a small model."""

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 100000},
    "gradient_clipping": 1.0,
}


def main():
    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=CONFIG
    )
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(5):
        x = torch.randn(8, 16, generator=data).to(engine.device)
        y = torch.randint(4, (8,), generator=data).to(engine.device)
        loss = F.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
        if step == 0 and dist.get_rank() == 0:
            engine.save_checkpoint("checkpoints")


if __name__ == "__main__":
    main()
