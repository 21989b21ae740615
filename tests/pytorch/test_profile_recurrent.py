"""Recurrent mixers that are measured: their chunks compute what the recurrence says, and a hybrid's step has all its layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.profile.case import of_job
from windtunnel.spec import load_job
from windtunnel.workload import parameter_count

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

JOB = Path(__file__).parents[2] / "examples" / "jobs" / "tiny-llama.toml"
SMALL = ("model.hidden=64", "model.heads=4", "model.kv_heads=2", "model.ffn=96", "model.vocab=512", "plan.seq=40")
MAMBA = ("model.ssm_heads=4", "model.ssm_head_dim=8", "model.ssm_groups=2", "model.ssm_state=6", "model.ssm_chunk=16")
DELTA = ("model.linear_heads=4", "model.linear_key_heads=2", "model.linear_key_dim=8", "model.linear_value_dim=6")
HYBRIDS = {
    "mamba": (*SMALL, *MAMBA, 'model.layer_pattern="M-M*-"', "model.layers=5"),
    "delta": (*SMALL, *DELTA, 'model.mixer_pattern="L3A"', "model.layers=4"),
    "mixture": (*SMALL, *MAMBA, 'model.layer_pattern="ME*E"', "model.layers=4", "model.experts=4", "model.top_k=2"),
}


@pytest.fixture(autouse=True)
def wide() -> object:
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("seq", [8, 37])
def test_the_scan_of_states_is_its_recurrence(seq: int) -> None:
    from windtunnel.profile.modules.recurrent import state_space_scan

    x, step, decay, skip = torch.randn(2, seq, 4, 5), torch.randn(2, seq, 4), torch.randn(4), torch.randn(4)
    b, c = torch.randn(2, seq, 2, 6), torch.randn(2, seq, 2, 6)
    state, out = torch.zeros(2, 4, 5, 6), []
    for t in range(seq):
        delta = torch.nn.functional.softplus(step[:, t])
        forget = (-delta * decay.exp()).exp()[..., None, None]
        written = (x[:, t] * delta[..., None])[..., None] * b[:, t].repeat_interleave(2, dim=1)[:, :, None]
        state = state * forget + written
        out.append((state * c[:, t].repeat_interleave(2, dim=1)[:, :, None]).sum(-1) + x[:, t] * skip[:, None])
    assert torch.allclose(state_space_scan(x, step, decay, b, c, skip, 8), torch.stack(out, dim=1), atol=1e-10)


@pytest.mark.parametrize("seq", [8, 37])
def test_the_delta_rule_is_its_recurrence(seq: int) -> None:
    from windtunnel.profile.modules.recurrent import delta_rule

    q, v, strength = torch.randn(2, seq, 2, 6), torch.randn(2, seq, 4, 5), torch.rand(2, seq, 4)
    k, decay = torch.nn.functional.normalize(torch.randn(2, seq, 2, 6), dim=-1), -torch.rand(2, seq, 4)
    state, out = torch.zeros(2, 4, 5, 6), []
    for t in range(seq):
        key, query = (part[:, t].repeat_interleave(2, dim=1)[:, :, None] for part in (k, q))
        state = state * decay[:, t].exp()[..., None, None]
        known = (state * key).sum(-1, keepdim=True)
        state = state + strength[:, t][..., None, None] * (v[:, t][..., None] - known) * key
        out.append((state * query).sum(-1) * 6**-0.5)
    assert torch.allclose(delta_rule(q, k, v, decay, strength, 8), torch.stack(out, dim=1), atol=1e-10)


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_hybrids_step_has_the_parameters_of_the_model(name: str) -> None:
    """Each layer is of its kind, trains, and has as many weights as the graph of the job counts."""
    from windtunnel.profile.device import open_device
    from windtunnel.profile.layers.study import LayerBench
    from windtunnel.profile.modules.family import Own

    job = load_job(JOB, HYBRIDS[name])
    run = LayerBench(of_job(job), Own(), "eager", open_device("cpu"), seed=0).whole_step()
    before = [parameter.detach().clone() for parameter in run.parameters]
    run.backward(run.forward())
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in run.parameters)
    run.update.step()
    assert any(not torch.equal(old, new) for old, new in zip(before, run.parameters, strict=True))
    assert sum(parameter.numel() for parameter in run.parameters) == pytest.approx(parameter_count(job.model), rel=0.01)


def test_a_kind_of_layer_without_a_module_is_said() -> None:
    from windtunnel.profile.modules.family import Own

    sets = [*SMALL, "model.kv_lora_rank=16", "model.qk_nope_dim=8", "model.qk_rope_dim=8", "model.v_dim=8"]
    case = of_job(load_job(JOB, sets))
    with pytest.raises(SpecError, match="latent_attention"):
        Own().layers(case)


def test_a_fitted_scan_answers_for_the_graphs_row(tmp_path: Path) -> None:
    """Rows of a scan become a curve of their own, which a job on that processor is predicted with."""
    from windtunnel.calibrate.kernels.fit import fit
    from windtunnel.compute import PROVENANCES, estimate
    from windtunnel.compute.kernel_file import text
    from windtunnel.measure.cells import job_with_curves
    from windtunnel.measure.planning import on_machine
    from windtunnel.profile.job_cases import job_plan
    from windtunnel.records import About, dataset
    from windtunnel.workload import Kind, build

    sheet = {"l2": 2.0**25, "memory": 2.0**34, "memory_bandwidth": 1e10, "peak.fp32": 1e11, "sms": 2.0}
    about = About("cpu-made-up", architecture="x86_64", datasheet=sheet, licence="Apache-2.0", source="made up")
    job = load_job(JOB, HYBRIDS["mamba"])
    rate = {"scan": 1e8, "gemm": 5e9}
    rows = [
        {**case.fields(), "seconds": 1e-5 + (case.bytes or 0.0) / rate.get(case.op, 2e9), "status": "ok", "source": "made up"}
        for case in job_plan(of_job(job), cuda=False)
    ]
    data = dataset(about, rows)
    curves = tmp_path / "kernels.json"
    curves.write_text(text(fit([data]).kernels), encoding="utf-8")
    assert "state_space_scan@aten" in json.loads(curves.read_text())["memory"]
    there = job_with_curves(on_machine(job, about.gpu, about), str(curves), data)
    ops = build(there).ops
    answer = estimate(ops, there.cluster.gpu, there.kernel_runtime)
    (scans,) = (ops.kind == Kind.SCAN).nonzero()
    assert len(scans) and {PROVENANCES[answer.provenance[row]] for row in scans} == {"modelled"}
    assert answer.seconds[scans] == pytest.approx(1e-5 + ops.bytes[scans] / 1e8, rel=0.1)
