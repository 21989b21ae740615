"""Adapters of frameworks. Megatron-Core itself is used where it is installed; modules of the same interface stand in otherwise."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.fleet.rings import open_rings
from windtunnel.records.sections import Section, Sections

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # of the frameworks themselves

import torch.distributed as dist  # noqa: E402

from windtunnel.fleet import watch  # noqa: E402

STAND_INS = {
    "megatron/core/pipeline_parallel/schedules.py": """
def forward_step(forward_step_func, data_iterator, model, num_microbatches, input_tensor, forward_data_store, config, cp_group_size,
                 collect_non_loss_data=False, checkpoint_activations_microbatch=None, is_first_microbatch=False,
                 current_microbatch=None, vp_stage=None, is_last_stage=True):
    return forward_step_func(data_iterator, model), 0
def backward_step(input_tensor, output_tensor, output_tensor_grad, model_type, config):
    output_tensor.backward()
def forward_backward(func, model, count):
    outputs = [forward_step(func, None, model, count, None, [], None, 1, current_microbatch=i, vp_stage=1)[0] for i in range(count)]
    for output in outputs:
        backward_step(None, output, None, None, None)
""",
    "deepspeed/runtime/engine.py": """
class DeepSpeedEngine:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every, self.steps = model, optimizer, every, 0
    def is_gradient_accumulation_boundary(self):
        return (self.steps + 1) % self.every == 0
    def step(self, lr_kwargs=None):
        if self.is_gradient_accumulation_boundary():
            self.optimizer.step()
        self.steps += 1
""",
    "deepspeed/runtime/pipe/engine.py": """
from types import MethodType
class Forward: pass
class Backward: pass
class Step: pass
class PipelineEngine:
    stage_id = 3
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.outputs = model, optimizer, []
    def _exec_forward_pass(self, inputs):
        self.outputs.append(self.model(inputs).sum())
    def _exec_backward_pass(self, inputs):
        self.outputs.pop().backward()
    def _exec_optimizer_step(self, inputs):
        self.optimizer.step()
    def run(self, commands, inputs):
        for command in commands:
            MethodType(self._INSTRUCTION_MAP[command], self)(inputs)
    _INSTRUCTION_MAP = {Forward: _exec_forward_pass, Backward: _exec_backward_pass, Step: _exec_optimizer_step}
""",
}


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The monitor in a group of one rank; frameworks that a test imports are forgotten after it."""
    monkeypatch.setenv("RANK", "0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    before = set(sys.modules)
    watch.start(folder=tmp_path, run="run")
    yield tmp_path
    watch.stop()
    dist.destroy_process_group()
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("megatron", "deepspeed"):
            del sys.modules[name]


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in STAND_INS.items():
        path = tmp_path / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for folder in [*path.relative_to(tmp_path / "packages").parents][:-1]:
            (tmp_path / "packages" / folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))


def rows(folder: Path, section: Section) -> Sections:
    watch.stop()
    table = recorded_of_rings(folder / "run").sections
    return table.where(table.section == section)


def frameworks(folder: Path) -> list[str]:
    with open_rings(folder / "run") as readers:
        return [value["framework"] for kind, value in readers[0].lines() if kind == "fact" and "framework" in value]


@pytest.mark.skipif(importlib.util.find_spec("megatron") is not None, reason="Megatron-Core itself is tested")
def test_megatron_by_a_stand_in(stand_ins: None, watched: Path) -> None:
    from megatron.core.pipeline_parallel import schedules

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        schedules.forward_backward(lambda _, one: one(torch.ones(1, 4)).sum(), model, 3)
        optimizer.step()
    forward = rows(watched, Section.FORWARD)
    assert forward.micro_batch.tolist() == [0, 1, 2] * 2 and {forward.names[n] for n in forward.name} == {"virtual stage 1"}
    assert rows(watched, Section.BACKWARD).micro_batch.tolist() == [0, 1, 2] * 2
    assert rows(watched, Section.OPTIMIZER).step.tolist() == [0, 1] and frameworks(watched) == ["megatron-core"]


def test_megatron_core_itself(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own schedule without pipelining, on a CPU with gloo."""
    pytest.importorskip("megatron.core")
    from megatron.core import parallel_state
    from megatron.core.enums import ModelType
    from megatron.core.model_parallel_config import ModelParallelConfig
    from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining

    parallel_state.initialize_model_parallel(1, 1)
    zeros = torch.zeros  # it counts tokens on "cuda"
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device=None, **options: zeros(*sizes, **options))
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_, **__: tensor)
    model = torch.nn.Linear(4, 4)
    model.config = ModelParallelConfig()
    model.config.calculate_per_token_loss = model.config.fine_grained_activation_offloading = False
    model.model_type = ModelType.encoder_or_decoder
    model.set_input_tensor = lambda tensor: None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [weight.clone() for weight in model.parameters()]
    for _ in range(2):
        forward_backward_no_pipelining(
            forward_step_func=lambda data, one: (one(next(data)), lambda out: (out.sum(), {})),
            data_iterator=iter([torch.ones(1, 4)] * 3), model=model, num_microbatches=3, seq_length=1, micro_batch_size=1,
        )  # fmt: skip
        optimizer.step()
    dist.all_reduce(torch.ones(1), group=parallel_state.get_tensor_model_parallel_group())
    parallel_state.destroy_model_parallel()
    assert not torch.equal(before[0], next(iter(model.parameters())))
    assert rows(watched, Section.FORWARD).micro_batch.tolist() == [0, 1, 2] * 2
    assert rows(watched, Section.BACKWARD).micro_batch.tolist() == [0, 1, 2] * 2
    assert "tp" in rows(watched, Section.CALL).group_names


def test_accelerate_itself(watched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two micro batches a step; its wrapper of the optimizer steps only where gradients are complete; weights are saved."""
    for name in [one for one in sys.modules if one.split(".")[0] == "accelerate"]:
        monkeypatch.delitem(sys.modules, name)  # another test's, which holds safetensors' function as it was before the watch
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    module = torch.nn.Linear(4, 4)
    data = torch.utils.data.DataLoader(torch.ones(12, 4), 2)
    model, optimizer, batches = accelerator.prepare(module, torch.optim.AdamW(module.parameters()), data)
    for batch in batches:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).sum())
            optimizer.step()
            optimizer.zero_grad()
    accelerator.save_state(str(tmp_path / "saved"))
    assert rows(watched, Section.OPTIMIZER).step.tolist() == [0, 1, 2]
    assert rows(watched, Section.FORWARD).step.tolist() == rows(watched, Section.BACKWARD).step.tolist() == [0, 0, 1, 1, 2, 2]
    saves = rows(watched, Section.CHECKPOINT)
    assert {"safetensors.save_file", "torch.save"} == {saves.names[name] for name in saves.name}
    assert (rows(watched, Section.DATA).seconds > 0).all() and frameworks(watched) == []


def test_deepspeed_by_a_stand_in(stand_ins: None, watched: Path) -> None:
    from deepspeed.runtime.engine import DeepSpeedEngine
    from deepspeed.runtime.pipe.engine import Backward, Forward, PipelineEngine, Step

    assert frameworks(watched) == []  # accelerate imports it to look for it, whatever the job trains with
    model = torch.nn.Linear(4, 4)
    engine = DeepSpeedEngine(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    for _ in range(4):
        model(torch.ones(1, 4)).sum().backward()
        engine.step()
    pipe = PipelineEngine(model, engine.optimizer)
    pipe.run([Forward, Forward, Backward, Backward, Step], torch.ones(1, 4))
    assert rows(watched, Section.OPTIMIZER).step.tolist() == [0, 1, 2]
    forward = rows(watched, Section.FORWARD)
    assert forward.micro_batch.tolist() == [0, 1] * 3
    assert [forward.names[name] for name in forward.name[-2:]] == ["stage 3"] * 2
    assert frameworks(watched) == ["deepspeed"]
