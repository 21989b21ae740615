"""Lightning's Trainer with DDP."""

import lightning
import torch
from common import STEPS, Layer, Samples, between_steps
from torch import nn

torch.set_num_threads(1)


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(Layer(64), Layer(64), nn.Linear(64, 8))

    def training_step(self, batch, index):
        loss = self.net(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, *rest):
        between_steps()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=4,
    strategy="ddp",
    max_steps=STEPS,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=0))
