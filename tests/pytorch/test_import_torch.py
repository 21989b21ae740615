"""Is a PyTorch module read as PyTorch itself counts it: parameters, FLOPs, saved tensors?"""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.cli import main
from windtunnel.formats.jobs.pytorch import from_module, import_torch
from windtunnel.spec import load_model
from windtunnel.spec.graph_model import GraphModel
from windtunnel.workload.from_graph import graph_flops

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FILE = Path(__file__).resolve().parents[2] / "examples" / "modules" / "vision.py"
SMALL: dict[str, dict[str, Any]] = {
    "vit": {"width": 64, "depth": 3, "heads": 4, "patch": 8, "size": 32, "batch": 2},
    "dit": {"width": 64, "depth": 3, "heads": 4, "size": 16, "batch": 2},
    "resnet": {"depth": 26, "batch": 2, "size": 64},
    "unet": {"batch": 1, "size": 16},
    "whisper_encoder": {"width": 64, "depth": 2, "heads": 4, "batch": 2},
}


def modules(name: str) -> tuple[Any, tuple[Any, ...]]:
    made: tuple[Any, tuple[Any, ...]] = runpy.run_path(str(FILE))[name](**SMALL[name])
    return made


@cache
def graph(name: str, **options: Any) -> GraphModel:
    found = import_torch(f"{FILE}:{name}", [f"{k}={v}" for k, v in SMALL[name].items()], **options).model
    assert isinstance(found, GraphModel)
    return found


def run(module: Any, inputs: tuple[Any, ...]) -> Any:
    out = module(*inputs)
    return out if out.dim() == 0 else out.sum()


@pytest.mark.parametrize("name", SMALL)
def test_flops_and_parameters_are_pytorchs(name: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    module, inputs = modules(name)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # the fused kernel is not counted on a CPU
        run(module, inputs).backward()
    model = graph(name, dtype="fp32")
    assert graph_flops(model) == counter.get_total_flops()
    assert model.parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_saved_tensors_are_those_that_autograd_keeps(name: str) -> None:
    module, inputs = modules(name)
    own = {p.untyped_storage().data_ptr() for p in (*module.parameters(), *module.buffers())}
    kept: dict[int, tuple[int, Any]] = {}

    def keep(tensor: Any) -> Any:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own and tensor.numel():
            kept[memory.data_ptr()] = (memory.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = run(module, inputs)
    measured = sum(size for size, _ in kept.values())
    assert loss.requires_grad
    model = graph(name, dtype="fp32")
    assert sum(times * sum(model.blocks[block].saved) for block, times in model.order) == pytest.approx(measured, rel=0.02)


def test_layers_that_are_equal_are_written_once() -> None:
    model = graph("vit")
    assert model.order == (("patch", 1), ("layers.*", 3), ("norm + head", 1))
    assert [model.blocks[name].root for name, _ in model.order] == [True, False, True]
    assert model.batch == 2 and model.tokens == 1


def test_what_a_pipeline_sends_over_a_skip_connection_is_counted() -> None:
    """Between down and up of the U-Net the kept results pass every cut, beside what flows through."""
    model = graph("unet", dtype="fp32")
    cut = {name: block.cut for name, block in model.blocks.items()}
    kept = [4 * 256 * 16 * 16, 4 * 512 * 8 * 8, 4 * 512 * 4 * 4]  # fp32: results of the way down
    assert cut["middle"] == sum(kept) + 4 * 512 * 2 * 2
    assert cut["down.0"] == 4 * 128 * 16 * 16


def test_a_loss_by_name_is_the_only_output() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=100
    )
    module = transformers.LlamaForCausalLM(config)
    ids = torch.zeros(2, 16, dtype=torch.int64)
    made = from_module(module, kwargs={"input_ids": ids, "labels": ids, "use_cache": False})
    model = made.model
    assert isinstance(model, GraphModel) and model.tokens == 16
    assert model.parameters == sum(p.numel() for p in module.parameters())
    layer = next(block for name, block in model.blocks.items() if "layers" in name)
    assert next(k for k in layer.kernels if k.kind == "attention")[3:8] == (8, 16, 16, 16, 1)  # HF repeats keys for each query head
    products = 2 * 32 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)
    assert sum(k.flops for k in layer.kernels if k.kind == "gemm" and k.phase == "forward") == products


def test_a_saved_program_is_the_same(tmp_path: Path) -> None:
    module, inputs = modules("vit")
    torch.export.save(torch.export.export(module, inputs), tmp_path / "vit.pt2")
    saved = import_torch(str(tmp_path / "vit.pt2")).model
    model = graph("vit", dtype="fp32")
    assert isinstance(saved, GraphModel)
    assert (saved.order, saved.blocks) == (model.order, model.blocks)


def test_depthwise_convolutions_are_no_products() -> None:
    made = from_module(torch.nn.Conv2d(8, 8, 3, groups=8), (torch.empty(2, 8, 10, 10),))
    kernels = [k for block in made.model.blocks.values() for k in block.kernels]  # type: ignore[attr-defined]
    assert {k.kind for k in kernels if "convolution" in k.name} == {"elementwise", "reduce"}
    assert kernels[0].flops == 2 * 2 * 8 * 8 * 8 * 9
    assert any("depthwise" in line for line in made.assumed)


def test_shared_parameters_count_once() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(50, 16)
            self.out = torch.nn.Linear(16, 50, bias=False)
            self.out.weight = self.words.weight

        def forward(self, ids: Any) -> Any:
            return self.out(self.words(ids)).float().logsumexp(-1).mean()

    model = from_module(Tied(), (torch.zeros(2, 8, dtype=torch.int64),)).model
    assert isinstance(model, GraphModel) and model.parameters == 800 and model.tokens == 8


def test_the_stored_example_is_what_the_command_writes() -> None:
    stored = load_model(FILE.parents[1] / "inputs" / "dit-xl-2.toml")
    made = import_torch(f"{FILE}:dit").model
    assert isinstance(stored, GraphModel) and isinstance(made, GraphModel)
    assert (stored.order, stored.blocks, stored.parameters) == (made.order, made.blocks, made.parameters)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such.py:f"], "no such file"),
        (["vision.py"], "factory"),
        (["FILE:nothing"], "resnet"),
        (["FILE:vit", "--arg", "deep=3"], "unexpected keyword"),
        (["FILE:vit", "--arg", "deep"], "NAME=VALUE"),
        (["FILE:vit", "--dtype", "fp8"], "bf16, fp16, fp32"),
        (["FILE:Attention", "--arg", "width=8", "--arg", "heads=2"], "--input"),
        (["FILE:Attention", "--arg", "width=8", "--arg", "heads=2", "--input", "2,4,8"], "SHAPE"),
        (["FILE:Attention", "--arg", "width=8", "--arg", "heads=2", "--input", "2x4x9"], "can trace"),
        (["windtunnel.no_such:f"], "ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_read_is_said(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [text.replace("FILE", str(FILE)) for text in arguments]
    assert main(["import", "torch", *given]) == 2
    assert words in capsys.readouterr().err


def test_a_module_alone_with_inputs_becomes_a_job(tmp_path: Path) -> None:
    out = tmp_path / "job.toml"
    assert (
        main(
            [
                "import",
                "torch",
                f"{FILE}:Attention",
                "--arg",
                "width=64",
                "--arg",
                "heads=4",
                "--input",
                "4x16x64",
                "--tokens",
                "16",
                "--on",
                "h100-ib",
                "--set",
                "cluster.gpus=8",
                "--set",
                "plan.global_batch=64",
                "-o",
                str(out),
            ]
        )
        == 0
    )
    assert main(["predict", str(out), "--quiet"]) == 0
    with pytest.raises((SpecError, WindtunnelError)):
        import_torch(f"{FILE}:vit", dtype="int8")
