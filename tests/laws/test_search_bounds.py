"""The bounds of a search lie below what is predicted, whatever the plan."""

from itertools import product

import numpy as np
import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict import predict
from windtunnel.search.bound.bounds import bounds
from windtunnel.search.bound.memory import GROWING, SETTLED, _count_held, micro_batches_held
from windtunnel.search.space import BY_SPEED, EVEN, LIGHT_ENDS, LIGHT_LAST, WITH_TP, Space
from windtunnel.spec import load_job
from windtunnel.spec.shapes import SHAPES

FLAGS = (False, True)
PLANS = 40
"""Plans of each space that are drawn once, with their bounds."""

COMMON = {
    "plan.tp": (1, 2, 4),
    "plan.pp": (1, 2, 4),
    "plan.vpp": (1, 2),
    "plan.micro_batch": (1, 2),
    "plan.sequence_parallel": (WITH_TP,),
    "plan.stages": (EVEN, LIGHT_LAST, LIGHT_ENDS),
    "plan.schedule": ("auto", "gpipe", "breadth-first", "zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipe", "dualpipev"),
    "runtime.overlap_grad_reduce": FLAGS,
    "runtime.overlap_param_gather": FLAGS,
    "runtime.overlap_p2p": FLAGS,
}
SPACES = {
    "dense": (
        "llama3-8b-8xh100",
        ["cluster.gpus=32", "plan.global_batch=32", "runtime.framework=megatron-core"],
        {
            "plan.recompute": ("none", "selective", "full"),
            "plan.recompute_layers": (None, 1),
            "plan.sharding": ("none", "zero1", "zero2"),
            "plan.cp": (1, 2),
        },
    ),
    "sharded": (
        "llama3-8b-8xh100",
        ["cluster.gpus=32", "plan.global_batch=32"],
        {"plan.recompute": ("none", "ops", "full"), "plan.sharding": ("fsdp", "hsdp", "zero3", "zero2"), "plan.cp": (1, 2)},
    ),
    "mixture": (
        "mixtral-8x7b-64xh100",
        ["plan.global_batch=128"],
        {
            "plan.ep": (1, 2, 4, 8),
            "plan.etp": (1, 2),
            "plan.recompute": ("none", "full"),
            "plan.sharding": ("none", "zero1"),
            "runtime.moe_a2a_overlap": FLAGS,
        },
    ),
    "mixed GPUs": (
        "llama3-8b-8xh100",
        [
            "cluster.gpus=32",
            "plan.global_batch=32",
            "unequal.mixed=[{nodes=[0,1],gpu='a100-sxm-80gb'}]",
            "unequal.slow=[{nodes=[2],factor=1.2}]",
        ],
        {"plan.recompute": ("none", "full"), "plan.sharding": ("fsdp", "zero1"), "plan.stages": (EVEN, BY_SPEED)},
    ),
    "reduction behind slower GPUs": (
        "llama3-8b-8xh100",
        [
            "model=qwen3-32b",
            "cluster=aws-p4de",
            "cluster.gpus=32",
            "plan.global_batch=64",
            "plan.seq=2048",
            "runtime.framework=maxtext",
            "unequal.mixed=[{nodes=[0,1],gpu='h100-sxm-80gb'}]",
        ],
        {"plan.tp": (1, 4), "plan.pp": (1,), "plan.vpp": (1,), "plan.sharding": ("none",), "plan.schedule": ("auto",)},
    ),
    "reduction behind a slow host": (
        {
            "model": "qwen3-next-80b-a3b",
            "cluster": "h100-ib",
            "runtime": {"framework": "megatron-core"},
            "plan": {"global_batch": 96, "seq": 2048},
        },
        ["cluster.gpus=32", "model.layers=16"],
        {
            "plan.tp": (4,),
            "plan.pp": (1,),
            "plan.vpp": (1,),
            "plan.etp": (4,),
            "plan.micro_batch": (1, 2),
            "plan.sharding": ("zero1",),
            "plan.recompute": ("none", "selective", "full"),
            "plan.recompute_layers": (1,),
            "runtime.overlap_grad_reduce": (True,),
            "runtime.overlap_param_gather": (False,),
        },
    ),
    "slow network": (
        "llama3-8b-8xh100",
        [
            "model=llama1-7b",
            "cluster=jean-zay",
            "cluster.gpus=64",
            "plan.global_batch=128",
            "plan.seq=4096",
            "runtime.framework=deepspeed",
        ],
        {"plan.tp": (1,), "plan.cp": (4,), "plan.pp": (8,), "plan.schedule": ("dualpipev", "zbv"), "plan.micro_batch": (2,)},
    ),
    "large caches": (
        "mixtral-8x7b-64xh100",
        ["cluster=mi325x-roce", "cluster.gpus=64", "plan.global_batch=64", "runtime.gradient_dtype=bf16"],
        {
            "plan.ep": (2, 8),
            "plan.schedule": ("auto",),
            "plan.sharding": ("none", "zero1"),
            "runtime.overlap_grad_reduce": (False,),
        },
    ),
    "ranks of a micro batch apart": (
        "llama3-8b-8xh100",
        ["cluster.gpus=32", "plan.global_batch=64", "model.layers=8", "runtime.framework=megatron-core"],
        {
            "plan.cp": (1, 2),
            "plan.placement": (
                ("dp", "tp", "cp", "ep", "pp"),
                ("pp", "tp", "cp", "ep", "dp"),
                ("cp", "dp", "tp", "ep", "pp"),
                ("tp", "cp", "pp", "ep", "dp"),
            ),
            "plan.schedule": ("auto",),
        },
    ),
    "compared calls of ranks apart": (
        "mixtral-8x7b-64xh100",
        [
            "model.layers=8",
            "plan.global_batch=64",
            "runtime.collective_checks=true",
            "runtime.launch_blocking=true",
            "runtime.host.check=0.0002",
        ],
        {"plan.pp": (4,), "plan.ep": (4, 8), "plan.placement": (("tp", "pp", "cp", "ep", "dp"),), "plan.schedule": ("auto",)},
    ),
    "reductions longer than passes": (
        {
            "model": "kimi-k2",
            "cluster": "aws-p4d",
            "runtime": {"framework": "meta"},
            "plan": {"global_batch": 256, "seq": 2048},
        },
        ["cluster.gpus=256", "model.layers=8"],
        {
            "plan.tp": (1,),
            "plan.pp": (4, 8),
            "plan.vpp": (1,),
            "plan.micro_batch": (1,),
            "plan.schedule": ("auto",),
            "plan.sharding": ("hsdp",),
            "plan.shard_group": (1, 2, 4, 8),
        },
    ),
    "gathers of blocks faster than one of all": (
        {
            "model": "llama1-7b",
            "cluster": "gh200-ib",
            "runtime": {"framework": "megatron-lm", "attention": "fused_softmax", "overlap_param_gather": False},
            "plan": {"global_batch": 512, "seq": 2048},
        },
        [
            "cluster.gpus=256",
            "model.layers=8",
            "runtime.precision=fp16",
            "runtime.gradient_dtype=fp16",
            "runtime.reduce_dtype=bf16",
        ],
        {
            "plan.tp": (1,),
            "plan.cp": (1, 2),
            "plan.pp": (1,),
            "plan.vpp": (1,),
            "plan.micro_batch": (1, 2),
            "plan.schedule": ("auto",),
            "plan.sharding": ("fsdp",),
        },
    ),
    "calibrated calls": (
        "llama3-8b-8xh100",
        [
            "model.layers=8",
            "cluster.gpus=16",
            "plan.global_batch=32",
            "plan.seq=1024",
            "runtime.framework=megatron-core",
            "calibration={calls={tp=0.5,dp=0.2,pp=0.2,world=0.2}}",
        ],
        {"plan.sharding": ("none", "zero1"), "runtime.overlap_grad_reduce": (False,), "plan.schedule": ("auto",)},
    ),
    "amax histories over replicas": (
        "llama3-8b-8xh100",
        [
            "model.layers=8",
            "plan.global_batch=16",
            "plan.seq=1024",
            "runtime.framework=megatron-core",
            "runtime.precision=fp8",
            "runtime.fp8_recipe=delayed",
            "runtime.fp8_amax_reduce=dp",
        ],
        {"plan.tp": (2, 4), "plan.pp": (1, 2, 4), "plan.sharding": ("none", "zero1")},
    ),
    "parameters on the host, one rank": (
        "llama3-8b-8xh100",
        ["model.layers=8", "plan.global_batch=4"],
        {
            "plan.tp": (1, 2),
            "plan.pp": (4,),
            "plan.sharding": ("zero3",),
            "plan.recompute": ("none", "full"),
            "plan.offload.parameters": ("none", "host"),
        },
    ),
    "offload": (
        "llama2-70b-64xh100",
        ["plan.global_batch=64"],
        {"plan.offload.activations": (0, 1, 4), "plan.offload.optimizer": ("none", "host"), "plan.sharding": ("none", "zero1")},
    ),
}


@pytest.fixture(scope="module")
def bounded():
    table = {}
    for name, (source, overrides, fields) in SPACES.items():
        job = load_job(source, overrides)
        columns = Space(job, COMMON | fields).columns()
        rows = np.random.default_rng(1).permutation(len(columns))[:PLANS]
        columns = columns.take(np.sort(rows))
        table[name] = (job, columns, bounds(columns))
    return table


@pytest.mark.parametrize("name", sorted(SPACES))
def test_no_bound_is_above_its_prediction(bounded, name):
    job, columns, found = bounded[name]
    ran = 0
    for number in range(len(columns)):
        try:
            prediction = predict(columns.change(number).apply(job))
        except WindtunnelError:
            continue
        ran += 1
        assert not found.refused[number]
        assert found.seconds[number] <= prediction.step_time_s * (1.0 + 1e-9)
        assert found.bytes[number] <= max(stage.allocated for stage in prediction.memory) * (1.0 + 1e-9)
        assert found.seconds[number] > 0.2 * prediction.step_time_s  # and not far below
    assert ran > PLANS / 3


@pytest.mark.parametrize("schedule", sorted(set(SHAPES) - set(GROWING)))
def test_more_micro_batches_than_settled_are_not_held(schedule):
    shape = SHAPES[schedule]
    for pp, vpp in product((2, 4, 6), (1, 2, 3)):
        if shape.virtual[0] <= vpp <= shape.virtual[1]:
            held = micro_batches_held(schedule, False, pp, vpp, SETTLED * pp)
            assert (_count_held(schedule, False, pp, vpp, 7 * pp) == held).all()


@pytest.mark.parametrize(
    ("schedule", "pp", "vpp", "held"),
    [
        ("gpipe", 4, 1, [[8], [8], [8], [8]]),  # all of them
        ("1f1b", 4, 1, [[4], [3], [2], [1]]),  # one for each stage from here to the last
        ("1f1b", 1, 1, [[1]]),
        # before the first backward pass 2 (pp - 1 - s) + (vpp - 1) pp + 1 forward passes: of parts in turn, two micro batches each
        ("interleaved", 2, 2, [[3, 2], [2, 1]]),
        # pp + 1 in all on every stage (DeepSeek-V3's report, table 2), of the two copies of the model
        ("dualpipe", 4, 1, [[4, 1], [3, 2], [2, 3], [1, 4]]),
    ],
)
def test_micro_batches_held_by_hand(schedule, pp, vpp, held):
    """Of eight."""
    assert _count_held(schedule, False, pp, vpp, 8).tolist() == held


def test_a_plan_is_not_refused_for_what_another_contradicts():
    job = load_job("llama3-8b-8xh100", ["cluster.gpus=32", "plan.global_batch=32"])
    columns = Space(job, {"plan.pp": (4, 8), "plan.sharding": ("hsdp", "zero1"), "plan.cp": (1, 2)}).columns()

    def contradicts(number):
        try:
            columns.change(number).apply(job)
        except WindtunnelError:
            return True
        return False

    wanted = [contradicts(number) for number in range(len(columns))]
    assert any(wanted) and not all(wanted)  # a group of eight ranks does not divide the four that hold a stage
    assert bounds(columns).refused.tolist() == wanted


@pytest.mark.parametrize("name", sorted(SPACES))
def test_a_plan_has_the_bound_that_it_has_alone(bounded, name):
    _, columns, found = bounded[name]
    for number in range(0, len(columns), 12):
        alone = bounds(columns.take(np.array([number])))
        assert alone.refused[0] == found.refused[number]
        assert alone.seconds[0] == pytest.approx(found.seconds[number], rel=1e-9)
        assert alone.bytes[0] == pytest.approx(found.bytes[number], rel=1e-9)
        assert alone.computing[0] == pytest.approx(found.computing[number], rel=1e-9)
