"""Is a model that is given as kernels built, counted, cut and refused as it should be?"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.cli import main
from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.spec import Job, check, dump_job, load_job, load_model, schema
from windtunnel.spec.graph_model import GraphModel
from windtunnel.workload import Phase, build, hardware_flops, model_flops, parameter_count

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

LAYER: dict[str, Any] = {
    "kernels": [
        ["up", "gemm", "forward", 1, 64, 512, 128, 1, 2.0 * 64 * 512 * 128, 3e5, 1],
        ["act", "elementwise", "forward", 1, 0, 0, 0, 1, 0.0, 131072.0, 1],
        ["up dgrad", "gemm", "dgrad", 1, 64, 128, 512, 1, 2.0 * 64 * 512 * 128, 3e5, 1],
        ["up wgrad", "gemm", "wgrad", 1, 512, 128, 64, 1, 2.0 * 64 * 512 * 128, 3e5, 1],
    ],
    "weights": [65536, 512],
    "saved": [1638400.0, 6553600.0],
    "working": 65536.0,
    "enters": 16384.0,
    "cut": 16384.0,
}
END: dict[str, Any] = {
    "kernels": [
        ["look", "attention", "forward", 8, 64, 64, 16, 1, 2.0 * 8 * 64 * 65 * 16, 1e5, 1],
        ["look grad", "attention_backward", "dgrad", 8, 64, 64, 16, 1, 5.0 * 8 * 64 * 65 * 16, 2e5, 3],
    ],
    "weights": [1000],
    "saved": [8192.0],
    "working": 100.0,
    "enters": 16384.0,
    "cut": 20000.0,
    "root": True,
}
MODEL: dict[str, Any] = {
    "kind": "graph",
    "name": "toy",
    "batch": 4,
    "tokens": 16,
    "blocks": {"layer": LAYER, "end": END},
    "order": [["layer", 3], ["end", 1]],
}


def job(overrides: tuple[str, ...] = (), gpus: int = 4, **fields: Any) -> Job:
    table = {
        "name": "toy",
        "model": MODEL | fields,
        "plan": {"global_batch": 32, "micro_batch": 4, "seq": 16},
        "runtime": {"framework": "fsdp"},
        "cluster": {"base": "h100-ib", "gpus": gpus},
    }
    return check(load_job(table, overrides))


def test_parameters_and_flops_are_sums_over_the_blocks() -> None:
    made = job()
    assert made.model.layers == 4
    assert parameter_count(made.model) == 3 * 66048 + 1000
    product, scores = 2.0 * 64 * 512 * 128, 8 * 64 * 64 * 16  # of attention every key counts, and its scores not again
    assert model_flops(made) == (3 * 3 * product + 12 * scores) * 8
    assert hardware_flops(build(made)) == model_flops(made)


def test_full_recompute_runs_forward_again_and_keeps_what_enters() -> None:
    workload = build(job(("plan.recompute=full",)))
    layer = workload.blocks[0]
    phases = workload.ops.phase[layer.backward.start : layer.backward.stop].tolist()
    assert phases[:2] == [Phase.RECOMPUTE] * 2
    assert layer.saved == 16384.0 and layer.working == 65536.0 + 8192000.0 - 16384.0
    product, scores = 2.0 * 64 * 512 * 128, 8 * 64 * 64 * 16
    assert hardware_flops(workload) - model_flops(workload.job) == (3 * product + 4 * scores) * 8


def test_memory_by_hand() -> None:
    found = memory_of(job(gpus=1), build(job(gpus=1)))[0]
    assert (found.activations, found.workspace) == (3 * 8192000, 65536 + 32 * 2**20)  # the end is freed when layers are highest
    assert found.weights == 2 * (3 * 66048 + 1000)
    kept = memory_of(job(("plan.recompute=full",), gpus=1), build(job(("plan.recompute=full",), gpus=1)))[0]
    assert kept.activations + kept.logits <= 4 * 16384


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "fsdp"])
def test_data_parallelism_runs(sharding: str) -> None:
    p = predict(job((f"plan.sharding={sharding}",), gpus=8))
    assert p.step_time_s > 0 and p.fits and sum(p.breakdown.values()) == pytest.approx(p.step_time_s)
    assert p.parameters == 3 * 66048 + 1000
    called = {row["op"] for row in p.collectives}
    assert called >= ({"all_gather", "reduce_scatter"} if sharding == "fsdp" else {"all_reduce"})


def test_a_pipeline_cuts_between_blocks_and_sends_what_passes() -> None:
    workload = build(job(("plan.pp=2", "plan.stages=[3, 1]")))
    assert [[chunk.blocks for chunk in stage] for stage in workload.stages] == [[((0, 3),)], [((1, 1),)]]
    assert workload.boundary == 20000.0
    assert workload.stage_parameters == (3 * 66048.0, 1000.0)
    assert predict(workload.job).step_time_s > 0


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("plan.tp=2", "do not say how to split them"),
        ("plan.cp=2", "plan.pp, plan.dp and plan.sharding"),
        ("plan.micro_batch=8", "imported with that many samples"),
        ("plan.seq=32", "tokens of a sample"),
        ("plan.recompute=selective", "none, full"),
        ("plan.schedule=zb-h1", "not split into halves"),
        ("runtime.precision=fp8", "bf16, fp16"),
        ("plan.recompute_layers=1", "blocks of kernels"),
        ("plan.document=8", "blocks of kernels"),
        ("runtime.graph_scope=['attn']", "blocks of kernels"),
        ("runtime.precision=fp32", "imported in bf16"),
    ],
)
def test_what_a_graph_cannot_do_is_refused(override: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        job((override,), gpus=8)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden": 128}, "hidden is a decoder's"),
        ({"order": [["leyer", 3]]}, "'leyer' is none of them"),
        ({"order": [["layer"]]}, "pairs"),
        (
            {
                "blocks": {"layer": LAYER | {"kernels": [["up", "gem", "forward", 1, 1, 1, 1, 1, 1.0, 1.0, 1]]}},
                "order": [["layer", 1]],
            },
            "gemm",
        ),
        ({"blocks": {"layer": LAYER | {"sawed": []}}, "order": [["layer", 1]]}, "saved"),
        ({"batch": 0}, "at least 1"),
    ],
)
def test_bad_graphs_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        job(**fields)


def test_it_is_written_and_read_again(tmp_path: Path) -> None:
    made = job()
    assert load_job(tomllib.loads(dump_job(made))) == made
    file = tmp_path / "job.toml"
    file.write_text(dump_job(made), encoding="utf-8")
    assert load_job(file) == made and hash(load_job(file)) == hash(made)
    assert "GraphModel" in schema()["$defs"]


def test_a_job_names_a_model_file_beside_it() -> None:
    made = check(load_job(EXAMPLES / "jobs" / "dit-xl-2-64xh100.toml"))
    assert isinstance(made.model, GraphModel)
    assert made.model == load_model(EXAMPLES / "inputs" / "dit-xl-2.toml")
    assert made.model.parameters == pytest.approx(675e6, rel=0.02)  # Peebles and Xie 2022, table 1


def test_reports_timelines_and_the_replay_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "jobs" / "dit-xl-2-64xh100.toml")
    trace, page, picture = (tmp_path / name for name in ("step.json", "step.html", "peak.pickle"))
    assert main(["predict", file, "--trace", str(trace), "--html", str(page)]) == 0
    assert main(["memory", file, "--replay", "--snapshot", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "convolution" in page.read_text(encoding="utf-8") and "dit" in told and "graph of kernels" in told
    assert all(path.stat().st_size > 1000 for path in (trace, page, picture))


def test_a_model_file_alone_needs_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "inputs" / "dit-xl-2.toml")
    on = ["--on", "h100-ib", "--set", "cluster.gpus=16", "--set", "plan.global_batch=1024", "--quiet"]
    assert main(["predict", file, *on]) == 0
    assert main(["predict", file, *on, "--set", "plan.tp=2"]) == 2
    assert "do not say how to split them" in capsys.readouterr().err


def test_without_pytorch_the_importer_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["import", "torch", "model.py:f"]) == 2
    assert "pip install 'windtunnel[torch]'" in capsys.readouterr().err
