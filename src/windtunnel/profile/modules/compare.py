"""Whether two implementations of a module compute the same: values and gradients, from the same weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.profile.case import Case
from windtunnel.profile.device import Device
from windtunnel.profile.modules.family import ModuleFamily, Own
from windtunnel.profile.modules.layer import TORCH, Angles, tables

TOLERANCE = {"fp32": 1e-4, "bf16": 4e-2, "fp16": 1e-2}
"""Tolerance relative to the largest expected number; 16-bit rounding differs if one side multiplies before it rounds."""

TOKENS = 64
"""Sequence length of a comparison: the sums that differ by length are over hidden widths, and those are the case's own."""


def compare(case: Case, theirs: ModuleFamily, device: Any, seed: int, errors: list[float] | None = None) -> dict[str, str]:
    """What differs, by module (records.MODULES) and in words; empty if nothing does. In fp32, and in the case's dtype.

    `errors` gets the largest difference of each comparison, as a share of the largest expected number.
    """
    off: dict[str, str] = {}
    noted: list[float] = [] if errors is None else errors
    for dtype in dict.fromkeys(("fp32", case.dtype)):
        small = replace(case, seq=min(case.seq, TOKENS), micro_batch=1, dtype=dtype)
        for op, words in _in_dtype(small, theirs, device, seed, noted).items():
            off.setdefault(op, f"{words} in {dtype}")
    return off


def compare_or_reason(case: Case, theirs: ModuleFamily, device: Device, seed: int) -> tuple[str, float | None]:
    """Empty if the two are equal, else the reason why the other implementation cannot be used; and the largest difference."""
    errors: list[float] = []
    try:
        off = compare(case, theirs, device.place, seed, errors)
    except Exception as error:
        if device.out_of_memory(error):
            return "could not be compared: does not fit into memory", None
        if not isinstance(error, RuntimeError):
            raise
        return f"could not be compared: {str(error).splitlines()[0][:160]}", None
    finally:
        device.forget()
    said = "not equal: " + "; ".join(f"{op}: {words}" for op, words in off.items()) if off else ""
    return said, max(errors, default=None)


def _in_dtype(case: Case, theirs: ModuleFamily, device: Any, seed: int, errors: list[float]) -> dict[str, str]:
    from windtunnel.profile.modules.huggingface import rename_weights

    dtype, own = TORCH[case.dtype], Own()
    torch.manual_seed(seed)
    a, b = (f.layer(case).to(device, dtype) for f in (own, theirs))
    b.load_state_dict(rename_weights(a.state_dict()))
    angles = tables(case.seq, case.model.dim_per_head, device, dtype)
    x = random_tensor((1, case.seq, case.model.hidden), device, dtype, seed)
    tolerance = TOLERANCE[case.dtype]
    off = {}
    ours, others = own.parts(a), theirs.parts(b)
    for op, parts in ours.items():
        for one, other in zip(parts, others[op], strict=True):
            own_part, twin = partial(_call, own, op, one, angles), partial(_call, theirs, op, other, angles)
            difference = _differs(x, own_part, twin, dict, dict, tolerance, errors)
            if difference:
                off[op] = difference
    difference = _differs(
        x,
        lambda v: a(v, angles),
        lambda v: b(v, angles),
        lambda: rename_weights(_gradients(a)),
        lambda: _gradients(b),
        tolerance,
        errors,
    )
    if difference:
        off["layer"] = difference
    head, other = (f.head(case).to(device, dtype) for f in (own, theirs))
    other.load_state_dict(head.state_dict())
    labels = torch.randint(case.vocab, (1, case.seq), generator=torch.Generator().manual_seed(seed)).to(device)
    difference = _differs(
        x,
        lambda v: head(v, labels),
        lambda v: other(v, labels),
        lambda: _gradients(head),
        lambda: _gradients(other),
        tolerance,
        errors,
    )
    if difference:
        off["head"] = difference
    return off


def _call(family: ModuleFamily, op: str, part: nn.Module, angles: Angles, x: Tensor) -> Tensor:
    return family.call(op, part, x, angles)


Call = Callable[[Tensor], Tensor]
Named = Callable[[], Mapping[str, Tensor]]


def _differs(
    x: Tensor, ours: Call, theirs: Call, our_gradients: Named, their_gradients: Named, tolerance: float, errors: list[float]
) -> str:
    """The first of value, input gradient and weight gradients that is not close, or an empty string."""
    results = []
    for call in (ours, theirs):
        own = x.detach().clone().requires_grad_()
        out = call(own)
        out.backward(torch.ones_like(out) if out.dim() == 0 else random_tensor(tuple(out.shape), out.device, out.dtype, 1))
        results.append((out.detach(), own.grad))
    (value, gradient), (value2, gradient2) = results
    pairs = {"values": (value, value2), "input gradient": (gradient, gradient2)}
    expected = our_gradients()
    for name, tensor in their_gradients().items():
        pairs[f"gradient of {name}"] = (expected[name], tensor)
    for name, (a, b) in pairs.items():
        if a is None or b is None or a.shape != b.shape:
            return f"{name}: not the same shape"
        scale = float(a.abs().max())
        errors.append(float((a - b).abs().max()) / (scale or 1.0))
        if not torch.allclose(b, a, rtol=tolerance, atol=tolerance * scale):
            return f"{name} off by {float((a - b).abs().max()) / (scale or 1.0):.2g} of the largest"
    return ""


def _gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def random_tensor(shape: tuple[int, ...], place: Any, dtype: torch.dtype, seed: int) -> Tensor:
    """Normal random numbers that depend only on the seed."""
    return torch.randn(shape, generator=torch.Generator(place).manual_seed(seed), device=place, dtype=torch.float32).to(dtype)
