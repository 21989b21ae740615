"""Hugging Face's Trainer with a GPT-2 of two layers, accumulation of two, and a callback."""

import os
import tempfile

import torch
from common import RANK, STEPS, between_steps, has, work_on_device
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if has("data"):
            work_on_device(0.008)
        tokens = (torch.arange(16) * (index % 11 + 1)) % 128
        return {"input_ids": tokens, "labels": tokens}


class Busy(TrainerCallback):
    def on_step_end(self, args, state, control, **rest):
        between_steps()


class Model(GPT2LMHeadModel):
    def forward(self, *args, **options):
        work_on_device(0.018 if has("compute") else 0.010)
        return super().forward(*args, **options)


torch.manual_seed(0)
model = Model(GPT2Config(vocab_size=128, n_positions=16, n_embd=32, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=STEPS,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    use_cpu=True,
    logging_steps=10,
    report_to=[],
    save_strategy="steps",
    save_steps=20,
    disable_tqdm=True,
    ddp_backend="gloo",
    dataloader_num_workers=0,
    remove_unused_columns=False,
)
Trainer(model=model, args=arguments, train_dataset=Words(), callbacks=[Busy()]).train()
if RANK == 0:
    print("trained", os.getpid())
