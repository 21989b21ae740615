"""Small jobs for tests, written out without the catalogue."""

from __future__ import annotations

from typing import Any

from windtunnel.spec import GPU, Cluster, Fabric, Host, Job, Model, Nic, Node, Plan, Runtime, ScaleUp, check

_GPU = GPU(
    id="a100-sxm-80gb",
    name="A100",
    architecture="ampere",
    memory="80GiB",
    memory_bandwidth="2039GB/s",
    sms=108,
    l2="40MB",
    peak={"bf16": "312TFLOP/s", "fp16": "312TFLOP/s"},
    achievable={"bf16": "271.2TFLOP/s"},
    power_w=400.0,
)  # type: ignore[arg-type]


def make_job(gpus: int | None = None, **fields: Any) -> Job:
    """A checked job of a small GPT; keyword arguments go to whichever noun has the field."""
    values: dict[type, dict[str, Any]] = {
        Model: {"name": "small", "layers": 4, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 51200},
        Plan: {"global_batch": 8, "seq": 1024},
        Runtime: {"framework": "megatron-lm", "host": Host(launch=5e-6), "attention": "fused_softmax"},
    }
    for name, value in fields.items():
        owner = next((noun for noun in values if name in noun.model_fields), None)
        if owner is None:
            raise KeyError(name)
        values[owner][name] = value
    plan = Plan(**values[Plan])
    count = gpus or plan.tp * plan.pp * plan.cp * (plan.dp or 1)
    scale_up = ScaleUp(size=8, bandwidth="300GB/s per GPU each way")  # type: ignore[arg-type]
    nic = Nic(count=8, bandwidth="200Gb/s")  # type: ignore[arg-type]
    node = Node(id="dgx-a100", gpu=_GPU, scale_up=scale_up, nic=nic, host_memory=2**40)
    cluster = Cluster(id="test", node=node, fabric=Fabric(id="ib", kind="infiniband"), gpus=count)
    return check(Job(model=Model(**values[Model]), plan=plan, runtime=Runtime(**values[Runtime]), cluster=cluster))
