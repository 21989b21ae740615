"""What is known of a row beside its cells: corrections, dates of cited files, kinds of memory, machines, plans it leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.reality import validate
from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.jobs.software import document_date, framework_named, software_of
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.corrections import read_corrections, with_corrections
from windtunnel.reality.rows.memory_kinds import layer_bytes, memory_kind
from windtunnel.reality.rows.table import TrainingRow, parse
from windtunnel.spec import Job

BERT = TrainingRow(
    "B1", "x", "libai", arch="bert", layers=24, hidden=1024, heads=16, ffn=4096, vocab=30592, seq=512, gbs=24, mbs=24,
    gpu="v100-sxm2-32gb", gpus=1, gpus_per_node=8, tp=1, pp=1, sharding="none", recompute="none", precision="fp16", iter_time_s=0.5,
)  # fmt: skip
TPU = TrainingRow(
    "P1", "x", "maxtext", arch="llama", layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000, seq=2048, mbs=4,
    gpu="tpu-v5e", gpus=512, fabric="ici+dcn", network_text="2x v5e-256", tp=1, pp=1, sharding="fsdp", recompute="full",
    precision="bf16", iter_time_s=1.0,
)  # fmt: skip
TABLE = "id,family,framework,model,gpu,gpus,gbs,seq,mbs,recompute,iter_time_s\nR1,f,nemo,llama3-8b,h100-sxm-80gb,8,128,8192,1,,10\n"


def job_of(row: TrainingRow) -> Job:
    drafted = draft(row)
    assert isinstance(drafted, Draft), drafted
    return drafted.jobs[0]


def test_bert_sees_all_tokens() -> None:
    job = job_of(BERT)
    assert not job.model.causal and job.model.norm == "layernorm" and job.model.dropout and job.runtime.framework == "libai"


@pytest.mark.parametrize(
    ("option", "attention", "library"),
    [
        ("attention-backend=unfused", "fused_softmax", None),
        ("transformer-impl local", "fused_softmax", None),
        ("attention-backend=flash", "flash", "fa2"),
        ("attention-backend=fused", "flash", "cudnn"),
    ],
)
def test_options_of_megatron_in_notes(option: str, attention: str, library: str | None) -> None:
    row = replace(BERT, framework="megatron-core", arch="gpt", gpu="h100-sxm-80gb", precision="bf16")
    assert job_of(row).runtime.fused_wgrad
    runtime = job_of(replace(row, notes=f"{option}; no-gradient-accumulation-fusion=True")).runtime
    assert (runtime.attention, runtime.attention_library, runtime.fused_wgrad) == (attention, library, False)


def test_scripts_of_flagperf_switch_no_overlap_on() -> None:
    """Megatron-Core 0.6 with the defaults that its Llama 3 keeps; PaddleNLP's RMS norms are plain on 40 GB."""
    cited = replace(
        BERT, source="FlagOpen/FlagPerf@1 README.md", gpu="a100-sxm-40gb", precision="bf16", arch="llama", model="llama3-8b"
    )
    job = job_of(replace(cited, framework="megatron-core"))
    assert job.runtime.framework == "megatron-core-defaults" and not job.runtime.overlap_grad_reduce
    assert job.model.dropout and job.model.linear_bias and job.model.position == "learned"
    paddle = job_of(replace(cited, framework="paddlenlp", model="llama1-7b", tp=2, gpus=2, seq_parallel=None))
    assert paddle.runtime.fused_rmsnorm is False and not paddle.plan.sequence_parallel


def test_a_pod_of_two_slices_has_two_domains_and_shards_in_each() -> None:
    job = job_of(TPU)
    assert (job.cluster.node.domain, job.cluster.fabric.kind) == (256, "ethernet")
    assert (job.plan.sharding, job.plan.shard_group) == ("hsdp", 256)
    assert job.plan.global_batch == 4 * 512  # MaxText accumulates nothing unless asked


def test_one_slice_is_the_torus_of_the_catalogue() -> None:
    job = job_of(replace(TPU, gpus=256, fabric="ici", network_text="1x v5e-256"))
    assert job.cluster.fabric.id == "ici-v5e" and job.cluster.node.gpus == 8 and job.plan.sharding == "fsdp"


def test_a_plan_that_is_not_published_is_the_least_cut_that_fits() -> None:
    """70e9 parameters of 16 bytes and more are above 80 GB for less than 16 parts; the optimizer's 12 are sharded over 32 ranks."""
    row = TrainingRow(
        "L1", "x", "nemo", source="24.07 container", model="llama3-70b", gbs=256, seq=8192, gpu="h100-sxm-80gb", gpus=64,
        gpus_per_node=8, nics_per_node=8, nic_gbit_s=400.0, fabric="ib", sharding="zero1", precision="bf16", iter_time_s=1.0,
    )  # fmt: skip
    drafted = draft(row)
    assert isinstance(drafted, Draft)
    plan = drafted.jobs[0].plan
    assert plan.tp * plan.pp > 2
    assert any("the least that fits in memory" in text for text in drafted.assumed)
    smaller = draft(replace(row, tp=plan.tp, pp=plan.pp))
    assert isinstance(smaller, Draft) and smaller.jobs[0].plan == plan


def test_adapters_that_features_name() -> None:
    row = replace(BERT, framework="nemo", arch="llama", gpu="h100-sxm-80gb", features="LoRA", tp=1)
    model = job_of(row).model
    assert model.lora is not None and not model.lora.all_to_all


@pytest.mark.parametrize(
    ("framework", "source", "date"),
    [
        ("megatron-bridge 26.04", "arXiv:2501.00001", (2026, 4)),  # the name
        ("nemo-launcher", "NVIDIA/NeMo-Framework-Launcher@f854ec2f README.md", (2022, 9)),  # the cited file
        ("megatron-bridge", "elsewhere", (2026, 2)),  # the middle of September 2025 and August 2026
    ],
)
def test_the_date_of_software(framework: str, source: str, date: tuple[int, int]) -> None:
    named = framework_named(framework)
    assert software_of(named, replace(BERT, framework=named.name, source=source)) == date


def test_a_citation_without_a_known_file_has_no_date() -> None:
    assert document_date(replace(BERT, source="elsewhere")) is None


@pytest.mark.parametrize(
    ("words", "framework", "kind"),
    [
        ("reserved", "nemo", ("reserved", "all", False)),
        ("rank0 reserved", "nanotron", ("reserved", "first", False)),
        ("max allocated, last rank", "megatron-core", ("allocated", "last", False)),
        ("rank-0 peak allocated GiB", "nemo", ("allocated", "first", False)),
        ("device GB as printed", "paddlenlp", ("total", "all", False)),
        ("GPU memory (nvidia-smi style)", "", ("total", "all", False)),
        ("peak GB", "torchtitan", ("reserved", "all", True)),
        (None, "none such", ("total", "all", True)),
    ],
)
def test_kinds_of_memory(words: str | None, framework: str, kind: tuple[str, str, bool]) -> None:
    assert tuple(memory_kind(replace(BERT, framework=framework, mem_kind=words))) == kind


def test_layer_bytes_are_korthikantis() -> None:
    """GPT-3 175B, micro batch 1, tp 8: s b h (10 + 24/8 + 5 a s / (h 8)) bytes = 578.8e6 (arXiv:2205.05198, equation 2)."""
    row = TrainingRow("M", "x", "unnamed", source="Korthikanti 2022 Fig 7", model="GPT3-175B", seq=2048, gpu="a100-sxm-80gb",
                      recompute="none", mem_gib=1.0)  # fmt: skip
    job = job_of(row)
    assert layer_bytes(job) == pytest.approx(2048 * 12288 * (10 + 24 / 8 + 5 * 96 * 2048 / (12288 * 8)), rel=0.001)


def test_corrections_set_cells_that_hold_the_old_value(tmp_path: Path) -> None:
    path = tmp_path / "any_corrections.csv"
    path.write_text(
        "id,column,old,new,confidence\nR1,recompute,,selective(layernorm+moe_act),high\nR1,mbs,2,4,high\nR1,gbs,128,64,low\n"
    )
    row, cells = with_corrections(parse(TABLE).training[0], read_corrections([path]))
    assert (row.recompute, row.recompute_modules, row.mbs, row.gbs) == ("selective", "layernorm;moe_act", 1, 128)
    assert cells == ["recompute selective (corrected)", "recompute_modules layernorm;moe_act (corrected)"]


def test_a_correction_of_no_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "any_corrections.csv"
    path.write_text("id,column,old,new\nR1,none_such,,1\n")
    with pytest.raises(FileError, match="none_such"):
        read_corrections([path])


def test_validate_reads_corrections_beside_a_table(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(TABLE)
    (tmp_path / "runs_corrections.csv").write_text("id,column,old,new\nR1,recompute,,full\n")
    report = validate([tmp_path / "runs.csv"])
    assert "recompute full (corrected)" in report.rows[0].assumptions
    assert report.family_coverage[0].which == "f"


def test_what_no_rule_fills_still_has_a_reason() -> None:
    found = draft(replace(BERT, arch=None, model="none such", layers=None))
    assert isinstance(found, Skipped) and "none such" in found.reason
