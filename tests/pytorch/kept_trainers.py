"""Two ranks of the Hugging Face Trainer or of Lightning, saved by the callbacks of the checkpointer, for jobs under a driver."""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from windtunnel.fleet import make_lightning_callback, make_trainer_callback

EPOCHS, BATCH = 3, 4
PAUSE = 0.02
"""Seconds of a step, at least."""


class Samples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """128 fixed samples."""

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        inputs = torch.randn(8, generator=torch.Generator().manual_seed(index))
        return {"x": inputs, "labels": inputs.sum()}


def train_by_hugging_face(folder: Path, every: int) -> nn.Module:
    """A model with dropout; `every` steps are saved."""
    import transformers

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.Linear(32, 1))

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": (self.layers(x).squeeze(-1) - labels).square().mean()}

    class Pause(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **given: Any) -> None:
            time.sleep(PAUSE)

    transformers.set_seed(3)
    model = Model()
    saves = make_trainer_callback(folder / "saved", every=every)
    arguments = transformers.TrainingArguments(
        str(folder / "hf"), num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, save_strategy="no", report_to=[],
        use_cpu=True, disable_tqdm=True, learning_rate=1e-2, logging_steps=1000,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=Samples(), callbacks=[saves, Pause()])
    trainer.train(resume_from_checkpoint=saves.resume(trainer))
    return model


def train_by_lightning(folder: Path, every: int) -> nn.Module:
    """A model without random numbers; `every` epochs are saved."""
    import lightning.pytorch as lightning

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

        def training_step(self, batch: Any, index: int) -> Any:
            time.sleep(PAUSE)
            return (self.layers(batch["x"]).squeeze(-1) - batch["labels"]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    lightning.seed_everything(3)
    module = Module()
    saves = make_lightning_callback(folder / "saved", every=every)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, callbacks=[saves], enable_checkpointing=False, logger=False, accelerator="cpu", devices=1, num_nodes=2,
        strategy="ddp", enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(Samples(), BATCH)
    trainer.fit(module, loader, ckpt_path=saves.resume(trainer, module))
    return module


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--framework", choices=("hf", "lightning"), required=True)
    options.add_argument("--every", type=int, required=True)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    train = train_by_hugging_face if given.framework == "hf" else train_by_lightning
    model = train(given.folder, given.every)
    if torch.distributed.get_rank() == 0:
        torch.save(model.state_dict(), given.folder / "final.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
