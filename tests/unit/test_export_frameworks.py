"""What is written for a framework reads back as the same job, but for what is listed as left out."""

from __future__ import annotations

import json
import tomllib

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.cli import main
from windtunnel.exports.exporters import Written, exporter_of
from windtunnel.exports.tables import different
from windtunnel.formats import from_arguments
from windtunnel.formats.jobs.deepspeed import import_table as from_deepspeed
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.torchtitan import import_table as from_torchtitan
from windtunnel.spec import Job, load_job, names

PLAN = ("tp", "pp", "cp", "vpp", "micro_batch", "global_batch", "seq", "sequence_parallel", "ep")


def _text(written: Written) -> str:
    (data,) = written.files.values()
    assert isinstance(data, str)
    return data


def _lists(written: Written, noun: str, name: str) -> bool:
    return any(line.startswith(f"{noun}.{name} ") for line in written.left_out)


def _same_but_for_what_is_listed(job: Job, back: Imported, written: Written) -> None:
    for noun, ours, theirs in (
        ("model", job.model, back.model),
        ("plan", job.plan, back.plan),
        ("runtime", job.runtime, back.runtime),
    ):
        for name, _ in different(ours, theirs, job):
            assert _lists(written, noun, name), f"{noun}.{name} is neither the same nor listed"


@pytest.mark.parametrize("name", names("jobs"))
def test_megatron_reads_back(name: str) -> None:
    job = load_job(name)
    written = exporter_of("megatron").export(job, {})
    back = from_arguments(_text(written), "text", None, Stated(gpus=job.cluster.gpus))
    _same_but_for_what_is_listed(job, back, written)
    assert back.plan is not None
    for field in PLAN:
        assert getattr(back.plan, field) == getattr(job.plan, field) or _lists(written, "plan", field)
    again = exporter_of("megatron").export(
        job.model_copy(update={"model": back.model, "plan": back.plan, "runtime": back.runtime}), {}
    )
    assert _text(again) == _text(written)


@pytest.mark.parametrize("name", names("models"))
def test_megatron_says_every_model_or_what_it_cannot(name: str) -> None:
    table = {
        "name": name,
        "model": name,
        "plan": {"global_batch": 8, "seq": 1024},
        "runtime": "megatron-core",
        "cluster": "h100-ib",
    }
    job = load_job(table, ["cluster.gpus=8"])
    written = exporter_of("megatron").export(job, {})
    back = from_arguments(_text(written), "text", None, Stated(gpus=8))
    _same_but_for_what_is_listed(job, back, written)
    if not _lists(written, "model", "mixer_pattern"):
        assert back.model.layers == job.model.layers and back.model.ffn == job.model.ffn  # type: ignore[union-attr]


@pytest.mark.parametrize("name", names("jobs"))
def test_torchtitan_and_deepspeed_say_any_job(name: str) -> None:
    job = load_job(name)
    table = tomllib.loads(_text(exporter_of("torchtitan").export(job, {})))
    assert table["parallelism"]["tensor_parallel_degree"] == job.plan.tp
    config = json.loads(_text(exporter_of("deepspeed").export(job, {})))
    assert config["train_batch_size"] == job.plan.global_batch
    back = from_deepspeed(config, job)
    assert back.plan is not None and back.plan.micro_batch == job.plan.micro_batch


def test_torchtitans_own_job_reads_back() -> None:
    """FSDP over 64 GPUs in groups of 8, tp 2, selective recompute, compiled."""
    table = {
        "name": "t",
        "model": "llama3.1-8b",
        "plan": {"tp": 2, "sharding": "hsdp", "shard_group": 8, "global_batch": 64, "seq": 8192, "micro_batch": 2}
        | {"recompute": "ops", "sequence_parallel": True},
        "runtime": {"framework": "torchtitan", "launch": "compile"},
        "cluster": "h100-ib",
    }
    job = load_job(table, ["cluster.gpus=64"])
    written = exporter_of("torchtitan").export(job, {})
    back = from_torchtitan(tomllib.loads(_text(written)), None, Stated(gpus=64))
    _same_but_for_what_is_listed(job, back, written)
    assert back.plan is not None and back.runtime is not None
    assert (back.model.name, back.plan.shard_group, back.plan.recompute, back.runtime.launch) == (
        "llama3.1-8b",
        8,
        "ops",
        "compile",
    )


def test_an_unknown_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    job = load_job(names("jobs")[0])
    for name in ("megatron", "torchtitan", "deepspeed"):
        with pytest.raises(SpecError, match="no option"):
            exporter_of(name).export(job, {"a": "b"})
    assert main(["export", "megatron", names("jobs")[0]]) == 0
    assert "--num-layers" in capsys.readouterr().out
