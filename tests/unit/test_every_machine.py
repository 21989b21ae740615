"""Every machine of the catalogue under every framework answers: dense, with adapters, in words too."""

from __future__ import annotations

import pytest

from windtunnel.jobs.load import load_described_job
from windtunnel.predict import predict
from windtunnel.predict.sheet.evidence import evidence_sentence
from windtunnel.spec import check, load_job, names

ADAPTERS = ("model.lora.rank=16", "model.lora.base=nf4")


@pytest.mark.parametrize("framework", names("frameworks"))
@pytest.mark.parametrize("cluster", names("clusters"))
def test_a_small_job_is_answered(cluster: str, framework: str) -> None:
    table = {"name": "a", "model": "llama3.2-1b", "cluster": cluster, "runtime": {"framework": framework}}
    sharded = framework in (
        "fsdp",
        "torchtitan",
        "huggingface",
        "trl",
        "axolotl",
        "unsloth",
        "llama-factory",
        "ms-swift",
        "maxtext",
    )
    sets = ["plan.micro_batch=1", "plan.seq=2048", "plan.global_batch=64", f"plan.sharding={'fsdp' if sharded else 'zero1'}"]
    peak = load_job({**table, "plan": {"global_batch": 1, "seq": 1}}).cluster.gpu.peak
    sets.append(f"runtime.precision={'bf16' if 'bf16' in peak else 'fp16'}")
    gpus = min(16, load_job({**table, "plan": {"global_batch": 1, "seq": 1}}).cluster.gpus)
    for more in ((), ADAPTERS):
        job = check(load_job(table, [f"cluster.gpus={gpus}", *sets, *more]))
        answer = predict(job)
        assert answer.step_time_s > 0 and answer.memory and evidence_sentence(answer)


@pytest.mark.parametrize("framework", ["fsdp", "deepspeed", "trl"])
def test_a_first_plan_of_adapters_fits_where_sharded_weights_do(framework: str) -> None:
    """A frozen model has no gradients and no moments: 70 billion weights in 16 bits fit on 8 GPUs of 80 GB."""
    sets = ["cluster.gpus=8", f"runtime.framework={framework}", "model.lora.rank=16", "plan.seq=4096", "plan.global_batch=16"]
    job = load_described_job("llama3.1-70b", sets, "a100-ib").job
    assert predict(job).fits and job.plan.tp * job.plan.pp == 1
