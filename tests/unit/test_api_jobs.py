"""`wt.load` and `wt.read`: whatever the command line takes as JOB or FILE, from Python."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import windtunnel as wt
from windtunnel.jobs.load import load_described_job
from windtunnel.spec import load_job

INPUTS = Path(__file__).resolve().parents[2] / "examples" / "inputs"
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 4,
          "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 2816, "vocab_size": 32000,
          "max_position_embeddings": 4096}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


def test_a_name_a_table_and_a_job_file_are_loaded_as_before(tmp_path: Path) -> None:
    plain = load_job("llama3-8b-8xh100", ["plan.tp=2"])
    assert wt.load("llama3-8b-8xh100", ["plan.tp=2"]) == plain
    table = tomllib.loads(wt.dump(plain))
    assert wt.load(table) == load_job(table)
    assert wt.load(table, ["plan.tp=4"]) == load_job(table, ["plan.tp=4"])
    path = tmp_path / "job.toml"
    path.write_text(wt.dump(plain), encoding="utf-8")
    assert wt.load(path) == wt.load(str(path)) == plain


def test_a_contradiction_is_left_to_check_and_to_predictions() -> None:
    odd = wt.load("llama3-8b-8xh100", ["plan.dp=3"])
    assert odd.plan.dp == 3
    with pytest.raises(wt.PlanError):
        wt.check(odd)
    with pytest.raises(wt.PlanError):
        wt.predict(odd)
    with pytest.raises(wt.PlanError):
        wt.load_with_notes("llama3-8b-8xh100", ["plan.dp=3"])


def test_a_model_a_configuration_and_flags_need_a_machine(config: Path) -> None:
    overrides = ["cluster.gpus=16"]
    for source in ("llama3.1-8b", str(config)):
        loaded = load_described_job(source, overrides, "h100-ib")
        assert wt.load(source, overrides, on="h100-ib") == loaded.job
        assert wt.load_with_notes(source, overrides, on="h100-ib") == loaded
        with pytest.raises(wt.SpecError, match="--on"):
            wt.load(source)
    assert wt.load(config, overrides, on="h100-ib").model.hidden == 1024
    flags = (
        "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 --global-batch-size 16"
    )
    assert wt.load("llama3-8b-8xh100", flags=flags) == load_described_job("llama3-8b-8xh100", None, None, None, flags).job
    assert wt.load("llama3-8b-8xh100", model="llama3.1-8b").model.name == "llama3.1-8b"


def test_another_machine_moves_a_job() -> None:
    moved = wt.load("llama3-8b-8xh100", on="h200-ib")
    assert moved.cluster.id == "h200-ib" and moved == load_described_job("llama3-8b-8xh100", None, "h200-ib").job


def test_an_imported_model_goes_on_a_machine(config: Path) -> None:
    imported = wt.import_job(config)
    assert wt.load(imported, ["cluster.gpus=16"], on="h100-ib") == wt.load(config, ["cluster.gpus=16"], on="h100-ib")
    with pytest.raises(wt.SpecError, match="--on"):
        wt.load(imported)


@pytest.mark.parametrize("source", ["no-such-job", "no-such.toml", "no-such-folder/job.yaml"])
def test_what_is_nothing_is_refused(source: str) -> None:
    with pytest.raises(wt.SpecError):
        wt.load(source)


def test_read_says_what_a_configuration_is(config: Path) -> None:
    reading = wt.read(config)
    assert reading.content is wt.Content.JOB and isinstance(reading.value, wt.Imported) and reading.facts["parameters"] > 0
    with_machine = wt.read(config, overrides=["cluster.gpus=16"], on="h100-ib")
    assert isinstance(with_machine.value, wt.LoadedJob) and with_machine.value.job.cluster.gpus == 16
    assert with_machine.as_dict()["content"] == "job"


def test_read_makes_a_cluster_of_measured_calls(tmp_path: Path) -> None:
    log = tmp_path / "calls.txt"
    columns = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    lines = ["# nThread 1 nGpus 8 minBytes 1048576 maxBytes 1073741824 step: 2(factor)", "#"]
    lines += [f"#  Rank {rank} Group  0 Pid 1 on host device {rank} [0x00] NVIDIA H100" for rank in range(8)]
    lines += ["#", f"#  {columns}"]
    for size in (2**k for k in range(20, 31, 2)):
        time = 30.0 + size / 2e5  # us
        lines.append(f"{size} {size // 4} float sum -1 {time:.2f} 0 0 0 {time:.2f} 0 0 0")
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    calls = wt.read(log, format="nccl-tests")
    assert calls.content is wt.Content.COLLECTIVES and calls.value.tables
    fitted = wt.read(log, cluster="h100-ib", format="nccl-tests")
    assert fitted.content is wt.Content.CLUSTER and isinstance(fitted.value, wt.Cluster)
    assert fitted.value.achieved is not None and fitted.facts["calls"] == 2 * 6  # out of place and in place
    with pytest.raises(wt.SpecError):
        wt.read()


def test_names_and_entries_of_the_catalogue() -> None:
    assert (
        tuple(wt.catalog("gpus")) == wt.names("gpus") and wt.catalog("gpu", "h100-sxm-80gb") == wt.catalog("gpus")["h100-sxm-80gb"]
    )
    assert "kineto" in wt.catalog("formats") and list(wt.catalog("formats", "kineto")) == ["kineto"]
    for arguments in (("gpuss",), ("gpus", "h1000"), ("formats", "kinetoo")):
        with pytest.raises(wt.UnknownName):
            wt.catalog(*arguments)


def test_export_of_a_cluster_needs_a_format_that_has_one(tmp_path: Path) -> None:
    cluster = wt.load_cluster("h100-ib")
    written = wt.export(cluster, "nccl-topology")
    assert written.save(tmp_path / "topology.xml") == [tmp_path / "topology.xml"]
    with pytest.raises(wt.SpecError):
        wt.export(cluster, "megatron")
    with pytest.raises(wt.UnknownName):
        wt.export(cluster, "megatronn")


def test_a_calibration_counts_as_read_and_as_a_file(tmp_path: Path) -> None:
    job = wt.load("llama3-8b-8xh100", ["model.layers=2", "plan.global_batch=8", "plan.seq=1024"])
    wt.export(job, "kineto").save(tmp_path / "trace.json")
    fitted = wt.calibrate(tmp_path / "trace.json", job).fit.calibration
    slower = fitted.times("kernels.gemm", 2.0)
    path = tmp_path / "calibration.json"
    path.write_text(slower.model_dump_json(exclude_none=True), encoding="utf-8")
    as_read, as_file = (wt.predict(job, calibration=one).step_time_s for one in (slower, path))
    assert as_read == as_file > wt.predict(job).step_time_s
