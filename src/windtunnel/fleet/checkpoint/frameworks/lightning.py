"""A callback for Lightning: it saves through the checkpointer, and `fit` goes on from there.

    saves = windtunnel.fleet.make_lightning_callback("checkpoints", every=1)
    trainer = lightning.Trainer(callbacks=[saves], enable_checkpointing=False)
    trainer.fit(module, loader, ckpt_path=saves.resume(trainer, module))

It saves at the end of epochs: Lightning begins an epoch anew that was cut short. When it goes on, it makes its loader's iterator at
another moment, and that draws random numbers: dropout differs from a run that was not cut. For strategies whose ranks all have the
whole model: one device, DDP. Weights are saved by name; what Lightning keeps besides (moments, schedules, loops) is one object.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from windtunnel.base.errors import SpecError
from windtunnel.fleet.checkpoint.checkpointer import Checkpointer
from windtunnel.fleet.checkpoint.pickles import load_object
from windtunnel.fleet.checkpoint.states import LateRandomState, PerRank

WHOLE = ("SingleDeviceStrategy", "DDPStrategy")
"""Strategies whose ranks all have the whole model."""


class _Rest:
    """A Lightning checkpoint without its weights, as bytes."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}

    def state_dict(self) -> dict[str, bytes]:
        stream = io.BytesIO()
        torch.save(self.value, stream)
        load_object(io.BytesIO(stream.getvalue()))  # what a load would refuse is not saved
        return {"torch": stream.getvalue()}

    def load_state_dict(self, state: dict[str, bytes]) -> None:
        self.value = load_object(io.BytesIO(state["torch"]))


def _join_ranks(strategy: Any) -> None:
    """Sets up the process group as `fit` does: a step is loaded by all ranks or by none."""
    name, launcher = type(strategy).__name__, strategy.launcher
    if name not in WHOLE:
        raise SpecError("strategy", name, " or ".join(WHOLE))
    if "MultiProcessing" in type(launcher).__name__:  # its ranks are functions that only begin in `fit`
        raise SpecError("strategy", "ddp_spawn, ddp_fork or ddp_notebook", '"ddp"', 'Type: Trainer(strategy="ddp")')
    if launcher is not None:
        launcher.launch(strategy.setup_environment)


class LightningCheckpoints(Callback):
    """Saves every `every` epochs and at the end of `fit`, under the number of optimizer steps. `options`: of `Checkpointer`."""

    def __init__(self, folder: str | Path, every: int = 1, **options: Any) -> None:
        if every < 1:
            raise SpecError("every", every, "epochs between two saves, at least 1")
        self.folder, self.every, self.options = folder, every, options
        self._checkpointer: Checkpointer | None = None
        self._rest, self._random = _Rest(), LateRandomState()
        self._place: Path | None = None
        self._saved = -1

    def resume(self, trainer: Any, module: Any) -> str | None:
        """What `fit` takes as `ckpt_path` to go on from the newest intact step; None if there is none. Every rank calls it, and
        those that Lightning would start itself are started here. SpecError for a strategy that is not supported."""
        _join_ranks(trainer.strategy)
        self._checkpointer = Checkpointer(self.folder, **self.options)
        step = self._checkpointer.load(self._state(module))
        if step is None:
            return None
        self._saved = step
        self._place = Path(tempfile.mkdtemp(prefix="windtunnel-lightning-"))
        path = self._place / f"step-{step}.ckpt"
        torch.save({**self._rest.value, "state_dict": module.state_dict()}, path)
        return str(path)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuses to begin anew in a folder with steps; restores random numbers."""
        if self._checkpointer is None:
            raise SpecError(
                "ckpt_path", None, "saves.resume(trainer, module)", "Type: fit(…, ckpt_path=saves.resume(trainer, module))"
            )
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
        self._random.restore()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves if it is time."""
        if (trainer.current_epoch + 1) % self.every == 0 and trainer.global_step > self._saved:
            self._save(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves the last step and waits until it is written. LostSaveError if it cannot be kept."""
        if trainer.global_step > self._saved:
            self._save(trainer, pl_module)
        assert self._checkpointer is not None
        self._checkpointer.close()
        self._checkpointer = None

    def _state(self, module: Any) -> dict[str, Any]:
        return {"model": module, "lightning": self._rest, "random": PerRank(self._random)}

    def _save(self, trainer: Any, module: Any) -> None:
        assert self._checkpointer is not None
        dumped = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        self._rest.value = {name: value for name, value in dumped.items() if name != "state_dict"}
        self._checkpointer.save(trainer.global_step, self._state(module))
        self._saved = trainer.global_step
