"""What a captured script finds in the place of what needs a GPU, a compiler of kernels, or memory of the model's size."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache, wraps
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

from windtunnel.records.capture_file import COMPILED, COMPILED_END


def put_in(torch: Any, device: Any, notes: list[str]) -> None:
    """Puts the stand-ins in. `notes` grows by what is used of them."""
    _offer_packages(notes)
    _leave_out(torch, device, notes)
    _skip_hollow(torch)
    _replace_flex_attention(torch, notes)


PACKAGES = Path(__file__).parent / "packages"
_OF_MEGATRON = ("apex", "amp_C", "fused_weight_gradient_mlp_cuda", "transformer_engine")
"""Packages that stand in where Megatron-Core is installed alone: others only look whether they are there, and choose by it."""


class _Packages(PathFinder):
    """Finds what stands in for packages that are not installed. It is asked last."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if "." not in name and path is None and name != "triton":
            return super().find_spec(name, [str(PACKAGES)], target)
        return None

    @classmethod
    def find_distributions(cls, context: Any = None) -> Any:
        from importlib.metadata import DistributionFinder

        name = getattr(context, "name", None)
        return () if name is None else super().find_distributions(DistributionFinder.Context(name=name, path=[str(PACKAGES)]))


class _WithoutMegatron(_Packages):
    """The same without what is Megatron-Core's."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name in _OF_MEGATRON else super().find_spec(name, path, target)


class _TritonOfScripts(PathFinder):
    """Finds what stands in for Triton, for scripts: packages that are installed only look whether it is there."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "triton" or is_installed(_importer()):
            return None
        return super().find_spec(name, [str(PACKAGES)], target)


_LAUNCHERS = ("triton.runtime.jit", "triton.runtime.autotuner")


class _Launches(PathFinder):
    """Finds the true Triton's launcher, and lets it record: nothing is compiled."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _LAUNCHERS:
            return None
        spec = super().find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_replace(module: Any) -> None:
                run(module)
                _record_launches(module)

            spec.loader.exec_module = run_and_replace  # type: ignore[method-assign]
        return spec


def _record_launches(module: Any) -> None:
    from windtunnel.capture.fused import launch_triton

    def run(self: Any, *given: Any, grid: Any, warmup: bool = False, **named: Any) -> None:
        launch_triton(self.fn, grid, given, named)

    def run_first(self: Any, *given: Any, **named: Any) -> Any:
        return self.fn.run(*given, **named | (self.configs[0].all_kwargs() if self.configs else {}))

    if hasattr(module, "JITFunction"):
        module.JITFunction.run = run
    if hasattr(module, "Autotuner"):
        module.Autotuner.run = run_first


def _importer() -> str:
    """The file whose import is being looked up."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename.startswith("<frozen") or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    return frame.f_code.co_filename


def is_installed(file: str) -> bool:
    """Whether a file came with Python or a package: it lies beside what installers write, wherever that is (`pip --target` too)."""
    within = Path(file).parents
    return Path(sysconfig.get_path("stdlib")) in within or any(_has_packages(at) for at in within if str(at) in sys.path)


@cache
def _has_packages(folder: Path) -> bool:
    return any(folder.glob("*.dist-info"))


def _offer_packages(notes: list[str]) -> None:
    from windtunnel.capture import fused

    fused.notes = notes
    sys.meta_path.insert(0, _Launches)
    for name in _LAUNCHERS:
        if name in sys.modules:  # torch._dynamo imports it
            _record_launches(sys.modules[name])
    if find_spec("triton") is None:
        import_module("torch.utils._triton").has_triton_package()  # torch keeps the answer, and does not ask for the stand-in
    with_megatron = find_spec("megatron") is not None and find_spec("megatron.core") is not None
    sys.meta_path += [_Packages if with_megatron else _WithoutMegatron, _TritonOfScripts]


def _add_note(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)


HOLLOW = 64 << 20
"""Bytes from which on a tensor of the host holds no memory (`device.cpp`): what is written there is lost, so it is not."""

_FILLS = ("normal_", "uniform_", "fill_", "zero_", "erfinv_", "clamp_", "mul_", "add_", "exponential_", "random_", "copy_")


def _skip_hollow(torch: Any) -> None:
    """Filling a large tensor of the host takes no time: a model that is built there is not initialised."""

    def skipping(fill: Any) -> Any:
        def fill_unless_hollow(tensor: Any, *given: Any, **named: Any) -> Any:
            if tensor.device.type == "cpu" and tensor.nbytes >= HOLLOW:
                return tensor
            return fill(tensor, *given, **named)

        return fill_unless_hollow

    def convert(tensor: Any, *given: Any, **named: Any) -> Any:
        if tensor.device.type == "cpu" and tensor.nbytes >= HOLLOW:
            device, dtype, *_ = torch._C._nn._parse_to(*given, **{key: named[key] for key in named if key != "copy"})
            if (device is None or device.type == "cpu") and dtype not in (None, tensor.dtype):
                return torch.empty_like(tensor, dtype=dtype)
        return to(tensor, *given, **named)

    to = torch.Tensor.to
    torch.Tensor.to = convert
    for name, dtype in (("float", torch.float32), ("half", torch.float16), ("bfloat16", torch.bfloat16)):
        setattr(torch.Tensor, name, lambda tensor, dtype=dtype, **named: convert(tensor, dtype=dtype, **named))
    for name in _FILLS:
        setattr(torch.Tensor, name, skipping(getattr(torch.Tensor, name)))


def _leave_out(torch: Any, device: Any, notes: list[str]) -> None:
    """What a captured script doesn't do: it compiles nothing, and saves nothing. Functions that would be compiled are marked: what
    they would hold in registers takes no memory."""

    def compile_nothing(model: Any = None, **_: Any) -> Any:
        _add_note(notes, "torch.compile: the code runs as it is written, without fusion")
        if model is None:
            return compile_nothing
        if not isinstance(model, FunctionType):
            return model

        @wraps(model)
        def run_with_marks(*given: Any, **named: Any) -> Any:
            device.mark(COMPILED)
            try:
                return model(*given, **named)
            finally:
                device.mark(COMPILED_END)

        return run_with_marks

    def compile_module(module: Any, *_: Any, **__: Any) -> None:
        compile_nothing(module)

    def save_nothing(*_: Any, **__: Any) -> None:
        _add_note(notes, "saves are left out")

    torch.compile = compile_nothing
    torch.nn.Module.compile = compile_module
    torch.save = save_nothing
    import torch.distributed.checkpoint as checkpoint

    checkpoint.save = checkpoint.async_save = save_nothing
    if find_spec("safetensors") is not None:
        import_module("safetensors.torch").save_file = save_nothing  # type: ignore[attr-defined]


def _replace_flex_attention(torch: Any, notes: list[str]) -> None:
    """FlexAttention, which is compiled to one kernel, is taken as fused attention: causal where it has a mask of blocks."""
    from torch.nn.attention import flex_attention as module

    def flex_attention(
        query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None, scale: float | None = None,
        enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None,
    ) -> Any:  # fmt: skip
        _add_note(notes, "FlexAttention: fused attention, causal where it has a mask of blocks")
        attend = torch.nn.functional.scaled_dot_product_attention
        out = attend(query, key, value, is_causal=block_mask is not None, scale=scale, enable_gqa=enable_gqa)
        if return_aux is not None:
            return out, module.AuxOutput(lse=query.new_zeros(query.shape[:-1], dtype=torch.float32))
        return (out, query.new_zeros(query.shape[:-1], dtype=torch.float32)) if return_lse else out

    module.flex_attention = flex_attention
