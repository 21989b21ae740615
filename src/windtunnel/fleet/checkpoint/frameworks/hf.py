"""A callback for the Hugging Face Trainer: it saves through the checkpointer, and the Trainer goes on from there.

saves = TrainerCheckpoints("checkpoints", every=100)
trainer = Trainer(model, arguments, train_dataset=dataset, callbacks=[saves])
trainer.train(resume_from_checkpoint=saves.resume(trainer))
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from windtunnel.base.errors import SpecError
from windtunnel.fleet.checkpoint.checkpointer import Checkpointer
from windtunnel.fleet.checkpoint.states import JsonState, LateRandomState, PerRank


class TrainerCheckpoints(TrainerCallback):
    """Saves every `every` steps and at the end: weights, moments, schedule, random numbers, the Trainer's state. `options`: of
    `Checkpointer`. Set `save_strategy="no"`: the Trainer's own checkpoints are not needed. Not for its DeepSpeed and FSDP plug-ins.
    """

    def __init__(self, folder: str | Path, every: int = 100, **options: Any) -> None:
        if every < 1:
            raise SpecError("every", every, "steps between two saves, at least 1")
        self.folder, self.every, self.options = folder, every, options
        self._checkpointer: Checkpointer | None = None
        self._progress, self._random = JsonState(), LateRandomState()
        self._place: Path | None = None
        self._saved = -1

    def resume(self, trainer: Any) -> str | None:
        """What `trainer.train(resume_from_checkpoint=…)` takes to go on from the newest intact step; None if there is none. A
        collective call of all ranks."""
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            raise SpecError("trainer", "DeepSpeed or FSDP of the Trainer", "one process, or DDP")
        self._open(trainer.args)
        if self._saved < 0:
            return None
        self._place = Path(tempfile.mkdtemp(prefix="windtunnel-trainer-"))
        (self._place / TRAINER_STATE_NAME).write_text(json.dumps(self._progress.value), encoding="utf-8")
        trainer._load_from_checkpoint = lambda *_, **__: None
        trainer._load_scaler = lambda *_, **__: None
        trainer._load_optimizer_and_scheduler = lambda *_: self._load(trainer)
        trainer._load_rng_state = lambda *_: self._random.restore()
        return str(self._place)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Refuses to begin anew in a folder with steps."""
        if self._checkpointer is None:
            self._open(args)
            if self._saved >= 0:
                hint = "Type: trainer.train(resume_from_checkpoint=saves.resume(trainer))"
                raise SpecError("folder", f"step {self._saved}", "an empty folder, or a Trainer that goes on from it", hint)
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Saves if it is time."""
        if state.global_step % self.every == 0:
            self._save(state, given)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Saves the last step and waits until it is written. LostSaveError if it cannot be kept."""
        if state.global_step != self._saved:
            self._save(state, given)
        assert self._checkpointer is not None
        self._checkpointer.close()
        self._checkpointer = None

    def _open(self, args: TrainingArguments) -> None:
        _ = args.device  # joins the process group
        self._checkpointer = Checkpointer(self.folder, **self.options)
        step = self._checkpointer.load({"trainer": self._progress})
        self._saved = -1 if step is None else step

    def _load(self, trainer: Any) -> None:
        """Loads weights, moments and schedule once the Trainer has made and wrapped them."""
        assert self._checkpointer is not None
        given = {"model": trainer.model, "optimizer": trainer.optimizer, "lr_scheduler": trainer.lr_scheduler}
        step = self._checkpointer.load(self._state(given))
        if step != self._saved:
            raise SpecError("folder", f"step {step}", f"step {self._saved}, which was there a moment ago", "Begin again.")

    def _state(self, given: dict[str, Any]) -> dict[str, Any]:
        optimizer = given["optimizer"]
        return {
            "model": given["model"],
            "optimizer": getattr(optimizer, "optimizer", optimizer),  # within accelerate's
            "schedule": given["lr_scheduler"],
            "trainer": self._progress,
            "random": PerRank(self._random),
        }

    def _save(self, state: TrainerState, given: dict[str, Any]) -> None:
        assert self._checkpointer is not None
        self._progress.value = dataclasses.asdict(state)
        self._checkpointer.save(state.global_step, self._state(given))
        self._saved = state.global_step
