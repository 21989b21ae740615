"""Recurrent mixers: scans in chunks are their recurrences token by token, and stages are measured on the mixer's own tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from windtunnel.profile.case import of_job  # noqa: E402
from windtunnel.profile.device import Device  # noqa: E402
from windtunnel.profile.kernels import scan  # noqa: E402
from windtunnel.profile.kernels.case import Bench  # noqa: E402
from windtunnel.profile.modules.layer import MIXER_MODULES  # noqa: E402
from windtunnel.profile.modules.recurrent import delta_rule, state_space_scan  # noqa: E402
from windtunnel.spec import load_job  # noqa: E402

JOB = Path(__file__).parents[2] / "examples" / "jobs" / "tiny-llama.toml"
WIDTHS = ("linear_heads=4", "linear_key_dim=8", "linear_value_dim=16")
JOBS = {
    "state_space_scan": ("ssm_heads=4", "ssm_head_dim=8", "ssm_groups=2", "ssm_state=8", 'mixer_pattern="M3A"'),
    "delta_rule": (*WIDTHS, "linear_key_heads=2", 'mixer_pattern="L3A"'),
    "channel_delta_rule": (*WIDTHS, 'linear_decay="channel"', 'mixer_pattern="L3A"'),
}


def random(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("by_channel", [False, True])
def test_the_delta_rule_in_chunks(by_channel: bool) -> None:
    """A length that is no multiple of the chunk, keys shared by two heads of values."""
    torch.manual_seed(0)
    seq, keys, heads, k, v = 11, 2, 4, 3, 5
    q, key = random(2, seq, keys, k), torch.nn.functional.normalize(random(2, seq, keys, k), dim=-1)
    value, strength = random(2, seq, heads, v), random(2, seq, heads).sigmoid()
    decay = -(random(2, seq, keys, k) if by_channel else random(2, seq, heads)).abs()
    found = delta_rule(q, key, value, decay, strength, chunk=4)
    q, key = (part.repeat_interleave(2, dim=2) for part in (q * k**-0.5, key))
    kept = (decay.repeat_interleave(2, dim=2) if by_channel else decay.unsqueeze(-1)).exp()
    state, rows = torch.zeros(2, heads, k, v, dtype=torch.float64), []
    for at in range(seq):
        state = state * kept[:, at].unsqueeze(-1)
        told = torch.einsum("bhk,bhkv->bhv", key[:, at], state)
        fresh = strength[:, at].unsqueeze(-1) * (value[:, at] - told)
        state = state + torch.einsum("bhk,bhv->bhkv", key[:, at], fresh)
        rows.append(torch.einsum("bhk,bhkv->bhv", q[:, at], state))
    assert torch.allclose(found, torch.stack(rows, dim=1))


def test_the_state_space_scan_in_chunks() -> None:
    torch.manual_seed(0)
    seq, heads, groups, p, n = 11, 4, 2, 3, 5
    x, step, decay, skip = random(2, seq, heads, p), random(2, seq, heads), random(heads), random(heads)
    b, c = random(2, seq, groups, n), random(2, seq, groups, n)
    found = state_space_scan(x, step, decay, b, c, skip, 4)
    b, c = (part.repeat_interleave(2, dim=2) for part in (b, c))
    wide = torch.nn.functional.softplus(step)
    state, rows = torch.zeros(2, heads, p, n, dtype=torch.float64), []
    for at in range(seq):
        kept = (-wide[:, at] * decay.exp())[..., None, None].exp()
        state = state * kept + torch.einsum("bhp,bhn->bhpn", x[:, at] * wide[:, at].unsqueeze(-1), b[:, at])
        rows.append(torch.einsum("bhpn,bhn->bhp", state, c[:, at]) + x[:, at] * skip.unsqueeze(-1))
    assert torch.allclose(found, torch.stack(rows, dim=1))


@pytest.mark.parametrize("recurrence", JOBS)
def test_every_stage_runs_on_what_the_mixer_has_there(recurrence: str) -> None:
    """Both passes of each stage of a mixer are kernels of the plan, whose gradients are as many as tensors and weights go in."""
    job = load_job(JOB, [f"model.{text}" for text in JOBS[recurrence]] + ["plan.seq=32"])
    case = of_job(job)
    mixer = MIXER_MODULES[recurrence](case)
    stages: dict[str, tuple[Any, ...]] = {}

    def stage(name: str, function: Any, *inputs: Any) -> Any:
        stages[name] = inputs
        return function(*inputs)

    mixer.stage = stage
    x = torch.randn(case.micro_batch, case.seq, case.model.hidden, requires_grad=True)
    mixer(x).sum().backward()
    assert all(weight.grad is not None for weight in mixer.parameters())
    bench = Bench(Device(torch, "cpu", 0))
    ran = {}
    for kernel in scan.recurrences(case):
        ran[kernel.name, kernel.phase] = kernel.make(bench)()
    assert {name for name, _ in ran} == set(stages)
    for name, inputs in stages.items():
        gradients = ran[name, "backward"]
        assert [one.shape for one in gradients[: len(inputs)]] == [one.shape for one in inputs]
        assert ran[name, "forward"] is not None
    assert any(not one.is_contiguous() for inputs in stages.values() for one in inputs)
