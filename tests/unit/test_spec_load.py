"""Jobs from names, files and tables; bases, overrides, framework defaults; and back to text."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.spec import Job, check, dump_job, load_cluster, load_job, load_model, load_runtime, match_gpu, names, schema

JOB = "megascale-175b-12288"


def round_trip(job: Job) -> Job:
    return load_job(tomllib.loads(dump_job(job)))


@pytest.mark.parametrize("name", names("jobs"))
def test_dump_and_load_give_an_equal_job(name: str) -> None:
    job = load_job(name)
    again = round_trip(job)
    assert again == job
    assert hash(again) == hash(job)


@given(tp=st.sampled_from([1, 2, 4, 8]), bandwidth=st.floats(1e3, 1e13), tokens=st.floats(1, 1e15), text=st.text(max_size=20))
@examples(15)
def test_dump_is_exact_for_odd_numbers_and_texts(tp: int, bandwidth: float, tokens: float, text: str) -> None:
    job = load_job(
        {
            "base": JOB,
            "plan": {"tp": tp},
            "tokens": tokens,
            "source": text,
            "name": "x" + text,
            "cluster": {"node": {"nic": {"bandwidth": f"{bandwidth!r}B/s per NIC each way"}}},
        }
    )
    assert round_trip(job) == job


def test_cached_values_change_neither_equality_nor_hash() -> None:
    one, other = load_job(JOB), load_job(JOB)
    assert (one.dp, one.micro_batches, len(one.layers_per_stage), one.padded_vocab) == (192, 32, 8, 64512)
    assert one == other and hash(one) == hash(other)
    assert one != load_job(JOB, ["seed=1"])


@pytest.mark.parametrize(
    ("override", "path", "expected"),
    [
        ("plan.tp=4", "plan.tp", 4),
        ("cluster.gpus=1024", "cluster.gpus", 1024),
        ("model=llama3-8b", "model.name", "llama3-8b"),
        ("model.layers=4", "model.layers", 4),
        ("cluster.node=dgx-h100", "cluster.node.gpu.id", "h100-sxm-80gb"),
        ("cluster.node.gpu=h200-sxm-141gb", "cluster.gpu.id", "h200-sxm-141gb"),
        ("cluster.node.gpu.memory=40GiB", "cluster.gpu.memory", 40 * 2.0**30),
        ("runtime.host.launch=3us", "runtime.host.launch", 3e-6),
        ("runtime.version=0.10", "runtime.version", "0.10"),
        ("plan.dp=none", "plan.dp", None),
        ("cluster.node.nic=none", "cluster.node.nic", None),
        ("plan.stages=[1, 2]", "plan.stages", (1, 2)),
        ("runtime.overlap_grad_reduce=true", "runtime.overlap_grad_reduce", True),
        ("name='a=b'", "name", "a=b"),
        ("tokens=1e9", "tokens", 1e9),
    ],
)
def test_override(override: str, path: str, expected: object) -> None:
    value: Any = load_job(JOB, [override])
    for part in path.split("."):
        value = getattr(value, part)
    assert value == expected


def test_an_override_keeps_the_rest() -> None:
    changed, plain = load_job(JOB, ["cluster.node.nic.count=4"]), load_job(JOB)
    assert changed.cluster.node.nic is not None and plain.cluster.node.nic is not None
    assert changed.cluster.node.nic.count == 4 and changed.cluster.node.nic.bandwidth == plain.cluster.node.nic.bandwidth
    assert changed.model == plain.model and changed.cluster.fabric == plain.cluster.fabric


def test_later_overrides_win() -> None:
    assert load_job(JOB, ["plan.tp=2", "plan.tp=4"]).plan.tp == 4


def test_the_callers_table_is_left_alone() -> None:
    table: dict[str, Any] = {"base": JOB, "plan": {"dp": "none"}, "cluster": {"base": "megascale", "node": {"nic": "none"}}}
    before = json.dumps(table)
    load_job(table, ["plan.tp=4"])
    assert json.dumps(table) == before


def test_framework_defaults_depend_on_version_precision_and_launch() -> None:
    old, new = load_runtime("megatron-lm"), load_runtime("megatron-lm", version="3.0")
    assert not old.fused_wgrad and new.fused_wgrad and new.p2p_sync
    newest = load_runtime("megatron-lm", version="2024")  # every section up to the version holds
    assert newest.fused_wgrad and newest.data.read_back and not new.data.read_back
    assert load_runtime("megatron-lm").gradient_dtype == "fp16"
    assert load_runtime("megatron-lm", precision="bf16").gradient_dtype == "fp32"
    eager, compiled = load_runtime("torchtitan"), load_runtime("torchtitan", launch="compile")
    assert compiled.host.launch < eager.host.launch and compiled.fused_activation and not eager.fused_activation
    assert compiled.host.step == eager.host.step
    assert load_runtime("torchtitan", launch="compile", fused_activation=False, host={"launch": "9us"}).host.launch == 9e-6


def test_a_derived_framework_says_only_what_differs() -> None:
    assert load_runtime("nemo").framework == "nemo"
    assert load_runtime("nemo").gradient_dtype == "bf16" and load_runtime("megatron-core").gradient_dtype == "fp32"


TOML = 'base = "gpt3-175b-64"\n[plan]\nmicro_batch = 1\n[cluster.node]\nbase = "dgx-h100"\n'


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_files_of_three_kinds_say_the_same(tmp_path: Path) -> None:
    toml = load_job(write(tmp_path, "a.toml", TOML))
    also = load_job(str(write(tmp_path, "a.json", json.dumps(tomllib.loads(TOML)))))
    assert toml == also
    assert toml.cluster.gpu.id == "h100-sxm-80gb" and toml.cluster.fabric.id == "ib-hdr-selene"


def test_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    text = "base: gpt3-175b-64\ntokens: 3e11\nplan: {micro_batch: 1}\n"
    assert load_job(write(tmp_path, "a.yaml", text)).tokens == 3e11


def test_a_job_file_is_named_after_itself(tmp_path: Path) -> None:
    assert load_job(write(tmp_path, "mine.toml", dump_job(load_job(JOB)).replace(f'name = "{JOB}"\n', "", 1))).name == "mine"


def test_nouns_from_tables() -> None:
    assert load_model({"base": "llama3-8b", "layers": 2}).layers == 2
    assert load_cluster({"base": "selene", "node": "dgx-h100", "gpus": 8}).gpu.id == "h100-sxm-80gb"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("NVIDIA H20", "h20"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("NVIDIA B200", "b200-sxm-180gb"),
        ("NVIDIA GB200", "gb200-nvl72"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("Tesla V100-SXM3-32GB", "v100-sxm3-32gb"),
        ("  nvidia  h100 80gb hbm3\n", "h100-sxm-80gb"),
        ("mi300x", "mi300x"),
    ],
)
def test_match_gpu(printed: str, expected: str) -> None:
    assert match_gpu(printed).id == expected


@pytest.mark.parametrize("printed", ["H200", "NVIDIA H20-3e", "NVIDIA GB2000", "NVIDIA", "", "GeForce RTX 4090"])
def test_no_gpu_matches_by_part_of_its_name(printed: str) -> None:
    with pytest.raises(UnknownName):
        match_gpu(printed)


def test_schema_names_every_noun() -> None:
    made = schema()
    assert {"Model", "Plan", "Runtime", "Cluster", "Node", "Fabric", "GPU"} <= set(made["$defs"])
    assert "llama3-8b" in json.dumps(made["$defs"]["Model"])
    assert json.loads(json.dumps(made)) == made


def test_wrong_kind_of_catalogue() -> None:
    with pytest.raises(SpecError, match="gpus"):
        names("gpu")


def test_check_returns_the_job() -> None:
    job = load_job(JOB)
    assert check(job) is job


def test_a_cluster_takes_overrides() -> None:
    changed = load_cluster("megascale", ["fabric.oversubscription=1.16", "fabric.topology=fat_tree"])
    assert (changed.fabric.oversubscription, changed.fabric.topology) == (1.16, "fat_tree")
    assert changed.node == load_cluster("megascale").node
    with pytest.raises(SpecError, match="oversubscription"):
        load_cluster("megascale", ["fabric.oversubscriptoin=2"])
    assert load_cluster("megascale", ["cluster.fabric.oversubscription=1.16"]).fabric.oversubscription == 1.16


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("cluster.mtbf=5", "reliability.crash.per_node_day"),
        ("cluster.node.nic_bandwidth=5", "cluster.node.nic.bandwidth"),
        ("cluster.price=3", "cluster.price_per_gpu_hour"),
    ],
)
def test_words_of_operators_name_the_field_that_means_the_same(typed: str, meant: str) -> None:
    with pytest.raises(SpecError, match=f"Did you mean '{meant}'"):
        load_job(JOB, [typed])
