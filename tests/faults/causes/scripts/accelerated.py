"""A loop under Hugging Face Accelerate: prepare(), accumulate(), a collate function, and an evaluation every few steps."""

import os
import time

import torch
from accelerate import Accelerator
from common import STEPS, Layer, between_steps, has
from torch import nn

torch.set_num_threads(1)


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return [(index * prime) % 31 / 31.0 for prime in (3, 5, 7, 11)] * 16


def collate(rows):
    if has("data"):
        time.sleep(0.04)  # pads with a slow tokenizer
    return torch.tensor(rows)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Layer(64), Layer(64), nn.Linear(64, 4))

    def forward(self, inputs):
        return self.layers(inputs)


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=int(os.environ.get("ACCUMULATE", "2")))
torch.manual_seed(0)
model = Block()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(Texts(), batch_size=8, collate_fn=collate, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
step = 0
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    between_steps()
    step += accelerator.sync_gradients
    if step == STEPS:
        break
accelerator.print("loss", loss.item())
accelerator.end_training()
