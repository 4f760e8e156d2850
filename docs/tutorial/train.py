import torch
import torch.distributed as dist
import torch.nn.functional as F


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))


def loss_of(model, x, y):
    return F.mse_loss(model(x), y)


def update(model, optimizer):
    for weight in model.parameters():
        if weight.dim() > 1:
            dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
    optimizer.step()


def main():
    dist.init_process_group("gloo")
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(100):
        optimizer.zero_grad()
        loss_of(model, torch.randn(8, 16), torch.randn(8, 4)).backward()
        update(model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
