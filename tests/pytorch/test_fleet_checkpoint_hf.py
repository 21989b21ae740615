"""The Hugging Face Trainer with the checkpointer: stopped at any step, it ends as it would have without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from windtunnel.base.errors import SpecError  # noqa: E402
from windtunnel.fleet.checkpoint.folder import committed_steps  # noqa: E402
from windtunnel.fleet.checkpoint.frameworks.hf import TrainerCheckpoints  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Stopped(Exception):
    """The job is killed."""


class Stop(transformers.TrainerCallback):  # type: ignore[misc]
    """Ends training after a step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.global_step == self.at:
            raise Stopped


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A regression with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        found = self.layers(x).squeeze(-1)
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}


def _trained(folder: Path, saves: TrainerCheckpoints | None, stop: int = 0) -> dict[str, Any]:
    """Final weights of 14 steps, 5 an epoch."""
    transformers.set_seed(3)
    model = Model()
    numbers = torch.Generator().manual_seed(1)
    data = [{"x": torch.randn(8, generator=numbers), "labels": torch.randn((), generator=numbers)} for _ in range(20)]
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=14, per_device_train_batch_size=4, save_strategy="no", report_to=[], use_cpu=True, seed=3,
        disable_tqdm=True, logging_steps=2, learning_rate=1e-2, warmup_steps=3,
    )  # fmt: skip
    called = [*([saves] if saves else []), *([Stop(stop)] if stop else [])]
    trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=called)
    trainer.train(resume_from_checkpoint=saves.resume(trainer) if saves else None)
    assert trainer.state.global_step == 14
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("stop", [3, 8, 11])
def test_a_trainer_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, stop: int) -> None:
    wanted = _trained(tmp_path / "plain", None)
    killed = TrainerCheckpoints(tmp_path / "steps", every=3)
    with pytest.raises(Stopped):
        _trained(tmp_path / "first", killed, stop)
    assert killed._checkpointer is not None
    killed._checkpointer.close()
    got = _trained(tmp_path / "second", TrainerCheckpoints(tmp_path / "steps", every=3))
    assert [one.step for one in committed_steps(tmp_path / "steps")][0] == 14
    assert set(got) == set(wanted) and all(torch.equal(got[name], value) for name, value in wanted.items())


def test_a_folder_with_steps_is_not_begun_anew(tmp_path: Path) -> None:
    _trained(tmp_path / "first", TrainerCheckpoints(tmp_path / "steps", every=5))
    saves = TrainerCheckpoints(tmp_path / "steps", every=5)
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=2, report_to=[], use_cpu=True, save_strategy="no")
    trainer = transformers.Trainer(Model(), arguments, train_dataset=[{"x": torch.zeros(8), "labels": torch.zeros(())}],
                                   callbacks=[saves])  # fmt: skip
    with pytest.raises(SpecError, match="resume_from_checkpoint=saves.resume"):
        trainer.train()
    assert saves._checkpointer is not None
    saves._checkpointer.close()


def test_steps_between_saves_are_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="every"):
        TrainerCheckpoints(tmp_path, every=0)
