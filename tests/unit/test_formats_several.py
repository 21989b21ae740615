"""Jobs of Calculon, SimuMax and llm-analysis: several files, one job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.cli import main
from windtunnel.formats import format_of_table, import_job
from windtunnel.formats.jobs.several import merge_texts
from windtunnel.jobs.load import load_described_job as job_of
from windtunnel.jobs.load import load_parts
from windtunnel.workload import parameter_count

GPT3 = {"hidden": 12288, "feedforward": 49152, "seq_size": 2048, "attn_heads": 96, "attn_size": 128, "num_blocks": 96}
EXECUTION: dict[str, Any] = {
    "num_procs": 64,
    "tensor_par": 8,
    "pipeline_par": 8,
    "data_par": 1,
    "tensor_par_net": 0,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 64,
    "microbatch_size": 1,
    "datatype": "float16",
    "fused_activation": False,
    "attention_type": "multihead",
    "activation_recompute": "attn_only",
    "pipeline_interleaving": 3,
    "optimizer_sharding": False,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "none",
    "seq_par_ag_redo": True,
    "data_par_overlap": False,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "training": True,
}
SYSTEM = {
    "matrix": {"float16": {"tflops": 312, "gflops_efficiency": [[0, 0.1]]}},
    "vector": {"float16": {"tflops": 78, "gflops_efficiency": [[0, 0.1]]}},
    "mem1": {"GiB": 80, "GBps": 2048},
    "mem2": {"GiB": 512, "GBps": 32},
    "processing_mode": "no_overlap",
    "networks": [{"bandwidth": 300, "size": 8}, {"bandwidth": 25, "size": 65536}],
}
MOE: dict[str, Any] = {
    "model_type": "moe",
    "model_name": "deepseek_v3",
    "attention_type": "mla",
    "hidden_size": 7168,
    "head_num": 128,
    "kv_head_num": 128,
    "head_size": 128,
    "intermediate_size": 18432,
    "moe_ffn_hidden_size": 2048,
    "moe_shared_expert_intermediate_size": 2048,
    "layer_num": 61,
    "dense_layers": 3,
    "expert_num": 256,
    "v_head_dim": 128,
    "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "topk": 8,
    "vocab_size": 129280,
    "use_swiglu": True,
}
STRATEGY: dict[str, Any] = {
    "seq_len": 4096,
    "micro_batch_size": 1,
    "micro_batch_num": 8,
    "dtype": "bf16",
    "world_size": 256,
    "tp_size": 1,
    "pp_size": 4,
    "ep_size": 8,
    "etp_size": 1,
    "zero_state": 1,
    "enable_recompute": True,
    "recompute_granularity": "full_block",
    "recompute_layer_num": 2,
}


def _write(folder: Path, **tables: dict[str, Any]) -> list[str]:
    paths = []
    for name, table in tables.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(table))
        paths.append(str(path))
    return paths


def test_calculon_as_in_korthikanti(tmp_path: Path) -> None:
    """Its gpt3-175B with sequence parallelism and selective recompute (arXiv 2205.05198, figure 7)."""
    job = load_parts(_write(tmp_path, model=GPT3, execution=EXECUTION, system=SYSTEM)).job
    assert parameter_count(job.model) == pytest.approx(174.6e9, rel=0.005)
    plan = job.plan
    assert (plan.tp, plan.pp, plan.vpp, job.dp, plan.global_batch, plan.seq) == (8, 8, 3, 1, 64, 2048)
    assert (plan.sequence_parallel, plan.recompute, plan.sharding, job.cluster.gpus) == (True, "selective", "none", 64)
    gpu, node = job.cluster.gpu, job.cluster.node
    assert (gpu.peak["bf16"], gpu.memory_bandwidth, gpu.memory) == (312e12, 2048e9, 80 * 2**30)
    assert node.nic is not None
    assert (node.scale_up.size, node.scale_up.bandwidth, node.nic.bandwidth) == (8, 300e9, 25e9)


def test_the_order_of_files_does_not_matter_and_on_beats_the_system(tmp_path: Path) -> None:
    files = _write(tmp_path, system=SYSTEM, execution=EXECUTION, model=GPT3)
    job = load_parts(files, None, "selene").job
    assert (job.cluster.gpus, job.cluster.id) == (64, "selene")
    beside = job_of(files[1], None, "selene", model=files[2]).job
    assert beside.plan == job.plan


def test_a_model_alone_is_a_model(tmp_path: Path) -> None:
    (path,) = _write(tmp_path, model=GPT3)
    assert format_of_table(GPT3) == "calculon"
    imported = import_job(Path(path))
    assert imported.plan is None and imported.model.layers == 96
    assert any("vocabulary 51200" in line for line in imported.assumed)


def test_simumax_with_uneven_stages(tmp_path: Path) -> None:
    imported = import_job(merge_texts(_write(tmp_path, strategy=STRATEGY, model=MOE)))
    assert parameter_count(imported.model) == pytest.approx(671.0e9, rel=0.005)
    plan = imported.plan
    assert plan is not None
    assert (plan.pp, plan.dp, plan.ep, plan.global_batch, plan.stages) == (4, 64, 8, 512, (16, 15, 15, 15))
    assert (plan.recompute, plan.recompute_layers, plan.sharding) == ("full", 2, "zero1")


def test_llm_analysis_counts_two_matrices_in_the_mlp() -> None:
    """Its Llama-2-7b has ffn_embed_dim 16384 = 4 x 4096: 12 h^2 a layer, 6.57 billion with tied embeddings."""
    table = {"name": "l", "num_layers": 32, "n_head": 32, "hidden_dim": 4096, "vocab_size": 32000, "ffn_embed_dim": 16384}
    assert format_of_table(table) == "llm-analysis"
    imported = import_job(json.dumps({**table, "model_type": "llama", "max_seq_len": 4096}))
    assert parameter_count(imported.model) == pytest.approx(32 * 12 * 4096**2 + 32000 * 4096, rel=0.001)


@pytest.mark.parametrize(
    ("tables", "named"),
    [
        ({"execution": EXECUTION}, "model"),
        ({"model": GPT3, "execution": {**EXECUTION, "activation_recompute": "some"}}, "activation_recompute"),
        ({"model": GPT3, "execution": EXECUTION, "system": {**SYSTEM, "mem1": {"GiB": -1, "GBps": 1}}}, "mem1.GiB"),
        ({"model": GPT3, "execution": EXECUTION, "system": {**SYSTEM, "networks": 7}}, "networks"),
        ({"model": MOE, "strategy": {**STRATEGY, "world_size": 6}}, "world_size"),
        ({"model": MOE, "strategy": {**STRATEGY, "zero_state": 9}}, "zero_state"),
        ({"model": MOE, "strategy": STRATEGY, "again": STRATEGY}, "two plan files"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, tables: dict[str, dict[str, Any]], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        import_job(merge_texts(_write(tmp_path, **tables)))


def test_import_writes_a_job_that_predicts(tmp_path: Path) -> None:
    out = tmp_path / "job.toml"
    assert main(["import", *_write(tmp_path, model=GPT3, execution=EXECUTION, system=SYSTEM), "-o", str(out)]) == 0
    assert main(["predict", str(out), "--quiet"]) == 0


def test_the_files_of_the_samples(shared: Path) -> None:
    folder = shared / "samples" / "6_schedules_configs"
    if not folder.is_dir():
        pytest.skip("the samples are not here")
    for path in sorted((folder / "calculon" / "models").glob("*.json")) + sorted(
        (folder / "simumax/configs/models").glob("*.json")
    ):
        facts = json.loads(path.read_text())
        model = import_job(path).model
        assert model.layers == facts.get("num_blocks", facts.get("layer_num"))
        assert model.hidden == facts.get("hidden", facts.get("hidden_size"))
    runs = folder / "calculon" / "validation" / "seqsel"
    for path in sorted(runs.glob("*/*.json")):
        model_file = folder / "calculon" / "models" / f"{path.stem.rpartition('_')[0]}.json"
        job = load_parts([str(model_file), str(path)], None, "selene").job
        assert job.cluster.gpus == json.loads(path.read_text())["num_procs"]
