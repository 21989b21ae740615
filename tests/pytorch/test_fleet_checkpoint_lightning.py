"""Lightning with the checkpointer: stopped in any epoch, `fit` ends as it would have without, if it draws no random numbers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning.pytorch")

from windtunnel.base.errors import SpecError  # noqa: E402
from windtunnel.fleet.checkpoint.folder import committed_steps  # noqa: E402
from windtunnel.fleet.checkpoint.frameworks.lightning import LightningCheckpoints  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Stopped(Exception):
    """The job is killed."""


class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """A regression with AdamW and a schedule. Raises at the begin of step `stop`."""

    def __init__(self, stop: int = 0) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.stop = stop

    def training_step(self, batch: Any, index: int) -> Any:
        if self.stop and self.trainer.global_step == self.stop:
            raise Stopped
        return ((self.layers(batch[0]).squeeze(-1) - batch[1]) ** 2).mean()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


def _trained(folder: Path, saves: LightningCheckpoints | None, stop: int = 0) -> dict[str, Any]:
    """Final weights of three epochs of 5 steps."""
    lightning.seed_everything(3)
    module = Module(stop)
    numbers = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(20, 8, generator=numbers), torch.randn(20, generator=numbers))
    trainer = lightning.Trainer(
        max_epochs=3, callbacks=[saves] if saves else [], enable_checkpointing=False, logger=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(data, 4), ckpt_path=saves.resume(trainer, module) if saves else None)
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("stop", [7, 12])
def test_a_fit_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, stop: int) -> None:
    wanted = _trained(tmp_path, None)
    killed = LightningCheckpoints(tmp_path / "steps", every=1)
    with pytest.raises(Stopped):
        _trained(tmp_path, killed, stop)
    assert killed._checkpointer is not None
    killed._checkpointer.close()
    got = _trained(tmp_path, LightningCheckpoints(tmp_path / "steps", every=1))
    assert committed_steps(tmp_path / "steps")[0].step == 15
    assert all(torch.equal(got[name], value) for name, value in wanted.items())


def test_fit_has_to_be_told_where_to_begin(tmp_path: Path) -> None:
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[LightningCheckpoints(tmp_path)], enable_checkpointing=False, logger=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    data = torch.utils.data.TensorDataset(torch.zeros(4, 8), torch.zeros(4))
    with pytest.raises(SpecError, match="saves.resume"):
        trainer.fit(Module(), torch.utils.data.DataLoader(data, 4))


def test_ranks_that_only_begin_in_fit_are_refused(tmp_path: Path) -> None:
    trainer = lightning.Trainer(strategy="ddp_spawn", devices=2, accelerator="cpu", logger=False, default_root_dir=tmp_path)
    with pytest.raises(SpecError, match='Type: Trainer\\(strategy="ddp"\\)'):
        LightningCheckpoints(tmp_path / "steps").resume(trainer, Module())
