"""python lightning_ddp.py (Lightning starts the other processes)"""

import lightning
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self.layers(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    lightning.seed_everything(0)
    data = TensorDataset(torch.randn(1024, 16), torch.randint(4, (1024,)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=4,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        gradient_clip_val=1.0,
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=16, shuffle=True))


if __name__ == "__main__":
    main()
