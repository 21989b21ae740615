"""Every machine of the catalogue under every framework answers: dense or with adapters in turn, in words too."""

from __future__ import annotations

import pytest

from windtunnel.jobs.load import load_described_job
from windtunnel.predict import predict
from windtunnel.predict.sheet.evidence import evidence_sentence
from windtunnel.spec import check, load_job, names

ADAPTERS = ("model.lora.rank=16", "model.lora.base=nf4")
SHARDED = frozenset({"fsdp", "torchtitan", "huggingface", "trl", "axolotl", "unsloth", "llama-factory", "ms-swift", "maxtext"})


@pytest.mark.parametrize("cluster", names("clusters"))
def test_a_small_job_is_answered_under_every_framework(cluster: str) -> None:
    table = {"name": "a", "model": "llama3.2-1b", "cluster": cluster}
    machine = load_job({**table, "runtime": {"framework": "fsdp"}, "plan": {"global_batch": 1, "seq": 1}}).cluster
    gpus = min(16, machine.gpus)
    sets = [f"cluster.gpus={gpus}", "plan.micro_batch=1", "plan.seq=2048", f"plan.global_batch={2 * gpus}",
            f"runtime.precision={'bf16' if 'bf16' in machine.gpu.peak else 'fp16'}"]  # fmt: skip
    for number, framework in enumerate(names("frameworks"), names("clusters").index(cluster)):
        more = ADAPTERS if number % 2 else ()  # so that each machine and each framework meets both
        sharding = f"plan.sharding={'fsdp' if framework in SHARDED else 'zero1'}"
        try:
            answer = predict(check(load_job({**table, "runtime": {"framework": framework}}, [*sets, sharding, *more])))
            assert answer.step_time_s > 0 and answer.memory and evidence_sentence(answer)
        except Exception as error:
            error.add_note(f"{framework} {more}")
            raise


@pytest.mark.parametrize("framework", ["fsdp", "deepspeed", "trl"])
def test_a_first_plan_of_adapters_fits_where_sharded_weights_do(framework: str) -> None:
    """A frozen model has no gradients and no moments: 70 billion weights in 16 bits fit on 8 GPUs of 80 GB."""
    sets = ["cluster.gpus=8", f"runtime.framework={framework}", "model.lora.rank=16", "plan.seq=4096", "plan.global_batch=16"]
    job = load_described_job("llama3.1-70b", sets, "a100-ib").job
    assert predict(job).fits and job.plan.tp * job.plan.pp == 1
