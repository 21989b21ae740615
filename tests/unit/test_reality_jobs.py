"""Does a row become the job that was run, with every assumption said?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.jobs.software import release_of, software_date
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import TrainingRow, read
from windtunnel.spec.shapes import uneven

ROWS: dict[str, TrainingRow] = {row.id: row for path in measurements.tables() for row in read(path).training}


def made(row: str | TrainingRow, **changes: Any) -> Draft:
    found = draft(replace(ROWS[row] if isinstance(row, str) else row, **changes))
    assert isinstance(found, Draft), found.reason
    return found


def refused(row: str, **changes: Any) -> str:
    found = draft(replace(ROWS[row], **changes))
    assert isinstance(found, Skipped)
    return found.reason


def test_complete_row_is_one_job() -> None:
    """T0061: 1T, selective recompute, sequence parallelism, 512 A100 of Selene (Korthikanti et al. 2022, table 5)."""
    draft_ = made("T0061")
    assert draft_.blank == () and len(draft_.jobs) == 1
    job = draft_.jobs[0]
    assert (job.plan.tp, job.plan.pp, job.plan.vpp, job.dp, job.plan.recompute) == (8, 64, 1, 1, "selective")
    assert job.plan.sequence_parallel and job.cluster.id == "selene" and job.cluster.gpus == 512
    assert job.runtime.framework == "megatron-lm" and job.runtime.version == "3.0" and job.runtime.weight_dtype == "fp16"


def test_blanks_give_candidates_and_are_named() -> None:
    draft_ = made("T0010")
    assert draft_.blank == ("micro batch", "virtual stages")
    assert {job.plan.micro_batch for job in draft_.jobs} == {1, 2, 4, 8}
    assert {job.plan.vpp for job in draft_.jobs} == {1, 2}
    assert all(job.model.layers % (job.plan.pp * job.plan.vpp) == 0 for job in draft_.jobs)


def test_a_blank_count_is_not_zero() -> None:
    draft_ = made("T0054", vocab=None, kv_heads=None, gpus_per_node=None)
    job = draft_.jobs[0]
    assert job.model.vocab == 51200 and job.model.groups == job.model.heads and job.cluster.node.gpus == 8
    assert sum("not published" in line for line in draft_.assumed) == 3


def mixture(**changes: Any) -> Draft:
    given = {"experts": 8, "topk": 2, "moe_ffn": 1024, "arch": "moe", "vocab": 51200} | changes
    found = draft(replace(ROWS["T0054"], **given))
    assert isinstance(found, Draft), found
    return found


def test_a_released_mixture_fills_what_a_row_does_not_print() -> None:
    row = next(row for row in ROWS.values() if row.model == "deepseek-v3")
    found = draft(row)
    assert isinstance(found, Draft)
    model = found.jobs[0].model
    assert (model.kv_lora_rank, model.expert_width, model.kinds[2].experts, model.kinds[3].experts) == (512, 2048, False, True)
    assert found.jobs[0].plan.ep == row.ep and any("released deepseek-v3" in line for line in found.assumed)


def test_a_mixture_that_is_none_of_the_released_is_what_its_row_prints() -> None:
    plan = {"sharding": "zero1", "seq_parallel": "y"}
    model = mixture(shared_experts=1, dense_layers=2, **plan).jobs[0].model
    assert (model.experts, model.top_k, model.expert_width, model.shared_ffn) == (8, 2, 1024, 1024)
    assert [kind.experts for kind in model.kinds[:3]] == [False, False, True]
    assert mixture(attention="mla", **plan).jobs[0].model.latent


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layers": None, "params_b": None}, "layers not published"),
        ({"heads": 0}, "heads not published"),
        ({"arch": "moe"}, "experts, topk, moe_ffn not published"),
        ({"arch": None, "model": None}, "not published"),
        ({"arch": "hybrid", "model": "x"}, "no model of that name"),
        ({"experts": 8}, "topk, moe_ffn"),
        ({"ep": 2}, "expert"),
        ({"gpu": "abacus"}, "'abacus'"),
        ({"fabric": "string"}, "'string'"),
        ({"precision": "int3"}, "precision"),
        ({"recompute": "some"}, "recompute"),
        ({"tp": 3, "dp": None}, "tp"),
        ({"dp": 3}, "dp"),
        ({"gbs": 7, "dp": 2, "tp": 4}, "global_batch"),
        ({"sharding": "zero9"}, "sharding"),
        ({"gbs": None}, "gbs"),
        ({"gpus": None}, "gpus"),
        ({"seq": 10**12}, "seq"),
    ],
)
def test_what_cannot_be_a_job_has_a_reason(changes: dict[str, Any], reason: str) -> None:
    assert reason in refused("T0054", **changes)


def test_unpublished_heads_are_about_128_wide() -> None:
    """13824 wide on tp 8: 108 heads of 128 cannot be cut; 96 of 144 is the next nearest."""
    assert made("T0095", heads=None, kv_heads=None).jobs[0].model.heads == 112
    draft_ = made("T0095", heads=None, kv_heads=None, hidden=13824, tp=8, dp=4)
    assert draft_.jobs[0].model.heads == 96
    assert any("96 heads" in line for line in draft_.assumed)


def test_model_features_change_the_network() -> None:
    plain, fast = made("T0063").jobs[0].model, made("T0078").jobs[0]
    assert not plain.parallel_block and plain.window is None
    assert fast.model.parallel_block and fast.model.window is not None
    assert fast.runtime.optimizer == "lamb" and fast.runtime.overlap_tp
    assert any("sliding window" in line for line in made("T0078").assumed)


def test_bloom_is_bloom() -> None:
    model = made("T0095").jobs[0].model
    assert model.position == "alibi" and model.embedding_norm and not model.dropout and model.vocab == 250880


@pytest.mark.parametrize(
    ("layers", "stages", "greedy", "expected"),
    [
        (70, 12, True, (5, *[6] * 10, 5)),
        (78, 12, True, (*[7] * 11, 1)),
        (105, 8, False, (14, *[13] * 7)),
        (126, 64, False, (1, *[2] * 62, 1)),
        (126, 128, False, (0, *[1] * 126, 0)),
        (126, 129, False, None),
    ],
)
def test_uneven_layers(layers: int, stages: int, greedy: bool, expected: tuple[int, ...] | None) -> None:
    found = uneven(layers, stages, greedy)
    assert (found[0] if found else None) == expected
    if found:
        assert sum(found[0]) == layers


@pytest.mark.parametrize(
    ("source", "date"),
    [
        ("arXiv:2205.05198 Tables 3,5", (2022, 5)),
        ("README Jan 2021", (2021, 1)),
        ("images/cases_april2021.png", (2021, 4)),
        ("summary.md (NeMo 24.07)", (2024, 7)),
        ("archive.md (26.02.01 container, x)", (2026, 2)),
        ("eos_n64_ngc23.09_nemo/r.txt", (2023, 9)),
        ("llama3_h100_202412_torchtitan.md", (2024, 12)),
        ("asyncTP_2025-06_x.md", (2025, 6)),
        ("no date", None),
        ("", None),
    ],
)
def test_date_of_the_software(source: str, date: tuple[int, int] | None) -> None:
    assert software_date(replace(ROWS["T0054"], source=source)) == date


def test_release_is_not_younger_than_the_source() -> None:
    row = ROWS["T0054"]
    assert release_of(row, (2021, 4)) == ("megatron-lm", "2.0")
    assert release_of(row, (2023, 8)) == ("megatron-lm", "3.0")
    assert release_of(row, (2024, 7)) == ("megatron-core", "0.8")
    assert release_of(replace(row, sharding="fsdp"), (2021, 4)) == ("deepspeed", "0.3")
    assert release_of(replace(row, sharding="fsdp"), (2022, 4)) == ("deepspeed", "0.5")
    assert release_of(replace(row, framework="nemo"), (2024, 7)) == ("nemo", "24.07")
    assert release_of(replace(row, framework="none such"), None) is None


def test_blooms_planning_runs_are_fp16_until_its_bf16_optimizer() -> None:
    """BigScience's prequel: 16-bit gradients until 28 February 2022, fp32 ones from then on; the table prints bf16 for all."""
    before, after = made("T0787"), made("T0846")
    assert (before.jobs[0].runtime.precision, before.jobs[0].runtime.gradient_dtype) == ("fp16", "fp16")
    assert (after.jobs[0].runtime.precision, after.jobs[0].runtime.gradient_dtype) == ("bf16", "fp32")
    assert any("older than the framework's bf16 optimizer" in line for line in before.assumed) and not any(
        "fp16" in line for line in after.assumed
    )
    assert made("T0787", notes="no date").jobs[0].runtime.precision == "bf16"
    assert made("T0787", framework="torchtitan").jobs[0].runtime.precision == "bf16"


@pytest.mark.parametrize(("row", "layers"), [("T0714", 80), ("T0716", 78), ("T0717", 77), ("T0719", 81), ("T0722", 72)])
def test_unpublished_layers_follow_from_size_and_stages(row: str, layers: int) -> None:
    """BigScience's 200B is 80 layers (its log says so); the others are cut to what its TFLOP/s times seconds imply."""
    draft_ = made(row)
    assert draft_.jobs[0].model.layers == layers and layers % draft_.jobs[0].plan.pp == 0
    assert any(f"{layers} layers" in line for line in draft_.assumed)


def test_layers_stay_unknown_where_the_size_does_not_tell() -> None:
    assert "layers not published" in refused("T0714", params_b=None)
    assert "layers not published" in refused("T0714", params_b=210.0, pp=48, dp=1)
    assert "layers not published" in refused("T0714", ffn=1000)


def test_virtual_stages_are_few_and_divide_a_stage() -> None:
    counts = {job.plan.vpp for job in made("T0053").jobs}
    assert max(counts) <= 8 and 1 in counts


def test_operator_recompute_is_not_megatrons() -> None:
    assert made("T0102").jobs[0].plan.recompute == "ops"
    assert made("T0102").jobs[0].runtime.launch == "compile" and made("T0101").jobs[0].runtime.launch == "eager"


@pytest.mark.parametrize(
    ("precision", "plan", "recompute", "sharding", "modules", "master"),
    [
        ("bf16 + stochastic rounding", {"tp": 8, "pp": 4, "seq": 2048}, "full", "none", ("core_attn",), False),
        ("bf16 + stochastic rounding", {"tp": 32, "pp": 8, "seq": 2048}, "selective", "none", ("core_attn",), False),
        ("bf16 + fp32 optimizer", {"tp": 8, "pp": 4, "seq": 4096}, "selective", "zero1", ("core_attn",), True),
        ("bf16 + fp32 optimizer", {"tp": 32, "pp": 8, "seq": 8192}, "selective", "zero1", ("core_attn", "mlp"), True),
    ],
)
def test_the_rest_of_a_trainium_plan_is_its_examples(
    precision: str, plan: dict[str, int], recompute: str, sharding: str, modules: tuple[str, ...], master: bool
) -> None:
    """What the column of the precision says besides is which example was run."""
    sizes = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 16384, "vocab": 50304, "params_b": None}
    row = replace(ROWS["T0061"], **sizes, arch="llama", mbs=1, gbs=1024, vpp=None, dp=None, recompute=None, sharding=None,
                  seq_parallel=None, gpu="trainium1", gpus=1024, gpus_per_node=32, scaleup_gpus=32, fabric="efa",
                  nics_per_node=8, nic_gbit_s=100.0, framework="neuronx (2.20.0)", precision=precision, **plan)  # fmt: skip
    job = made(row).jobs[0]
    assert (job.plan.recompute, job.plan.sharding, job.plan.recompute_modules) == (recompute, sharding, modules)
    assert job.runtime.master_weights is master and job.runtime.precision == "bf16"


def test_share_of_dense_rows_that_become_jobs() -> None:
    dense = [
        row
        for row in ROWS.values()
        if row.complete == "y" and row.arch in ("gpt", "mpt", "llama", "nemotron") and row.precision in ("bf16", "fp16")
    ]
    assert len(dense) > 1000
    assert sum(isinstance(draft(row), Draft) for row in dense) / len(dense) > 0.99


@pytest.mark.parametrize(
    ("row", "targets", "once"), [("T1107", ("linear_qkv", "linear_proj"), True), ("T0387", ("linear_qkv",), False)]
)
def test_rows_of_adapters_train_those_of_their_benchmark(row: str, targets: tuple[str, ...], once: bool) -> None:
    found = draft(ROWS[row])
    assert isinstance(found, Draft)
    lora = found.jobs[0].model.lora
    assert lora is not None and (lora.rank, lora.targets) == (16, targets)
    assert found.jobs[0].runtime.fp8_weight_cache is not once
    assert any("LoRA" in text for text in found.assumed)


def test_a_hybrid_is_the_released_model_of_its_name() -> None:
    blank: dict[str, Any] = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "vpp"))
    row = {"model": "Nemotron_3_Nano", "arch": "hybrid", "source": "26.06 container", "pp": 1, "tp": 1, "dp": 8, "ep": 8, **blank}
    found = made("T0388", **row)
    assert found.jobs[0].model.name == "nemotron-3-nano-30b-a3b" and "nemotron-3-nano-30b-a3b" in " ".join(found.assumed)
    assert "no model of that name" in refused("T0388", **row | {"layers": 53})  # what is printed differs: no released model


def test_hybrids_recompute_what_the_recipes_list() -> None:
    blank: dict[str, Any] = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "vpp"))
    row = {"model": "Nemotron_3_Nano", "arch": "hybrid", "source": "26.06 container", "pp": 1, "tp": 1, "dp": 8, "ep": 8, **blank}
    plan = made("T0388", **row).jobs[0].plan
    assert (plan.recompute, plan.recompute_modules) == ("selective", ("core_attn", "layernorm", "moe"))
    assert made("T0388", **row | {"recompute": "none"}).jobs[0].plan.recompute == "none"
