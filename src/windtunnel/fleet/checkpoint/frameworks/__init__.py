"""The checkpointer in loops that are not the user's own: callbacks of frameworks, imported only where they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make_trainer_callback(folder: str | Path, every: int = 100, **options: Any) -> Any:
    """A callback for the Hugging Face Trainer that saves every `every` steps (`hf.TrainerCheckpoints`); its `resume(trainer)` gives
    what `train(resume_from_checkpoint=…)` takes. `options`: of `Checkpointer`. SpecError for `every` below 1."""
    from windtunnel.fleet.checkpoint.frameworks.hf import TrainerCheckpoints

    return TrainerCheckpoints(folder, every, **options)


def make_lightning_callback(folder: str | Path, every: int = 1, **options: Any) -> Any:
    """A callback for Lightning that saves every `every` epochs (`lightning.LightningCheckpoints`); its `resume(trainer, module)`
    gives what `fit(ckpt_path=…)` takes. `options`: of `Checkpointer`. SpecError for `every` below 1."""
    from windtunnel.fleet.checkpoint.frameworks.lightning import LightningCheckpoints

    return LightningCheckpoints(folder, every, **options)
