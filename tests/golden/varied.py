"""Answers to tables of varied inputs whose numbers are watched: fixes, advice, first plans, searches, designs and steps. Each takes
about half a second at most."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from asked import SMALL, TINY
from folding import folded, folded_list

import windtunnel as wt

UNIT = Path(__file__).parents[1] / "unit"


def said(lines: Any) -> list[list[str]]:
    """The numbers that sentences say."""
    return [re.findall(r"\d[\d.,]*", str(line)) for line in lines]


def unit(name: str) -> Any:
    """A file of tests/unit, for what it builds."""
    if str(UNIT) not in sys.path:
        sys.path.insert(0, str(UNIT))
    return import_module(name)


def or_refused(do: Callable[[], Any]) -> Any:
    """What it gives, or the numbers of the sentence with which it refuses."""
    try:
        return do()
    except wt.WindtunnelError as error:
        return [type(error).__name__, *said([error])]


def _tiny(*changes: str) -> Any:
    return wt.load(TINY[0], [*TINY[1:], *changes])


def _fixes(*changes: str) -> Any:
    from windtunnel.search import fixes

    found = fixes(wt.load("llama3-8b-8xh100", list(changes)))
    return [[*one.change.sets, one.spare, one.step_time_s, one.tokens_per_s, one.price] for one in found]


def _advised(source: str, *changes: str) -> Any:
    from windtunnel.search.levers.reasons import advise, sentences

    prediction = wt.predict(wt.load(source, list(changes)))
    found = advise(prediction)
    return [[one.part, one.cost_s, *(one.change.sets if one.change else ()), one.step_time_s, one.gain] for one in found], said(
        sentences(prediction, found)
    )


def _first_plans() -> Any:
    """How many plans a first plan is chosen among, and what they are guessed to take."""
    room, answers = import_module("windtunnel.search.start"), []
    for model, on, framework, own in (
        ("llama3-8b", "h100-ib", "megatron-core", {}),
        ("mixtral-8x7b", "h200-ib", "megatron-core", {"seq": 65536}),
        ("llama3-70b", "gb200-nvl72", "fsdp", {"micro_batch": 2}),
        ("gpt3-175b", "a100-ib", "deepspeed", {"pp": 4, "global_batch": 512}),
        ("llama3-8b", "tpu-v5p", "maxtext", {"dp": 8}),
    ):
        nouns = wt.load_model(model), wt.load_cluster(on)
        plans = list(room._candidates(*nouns, own, framework, 64))
        experts = bool(nouns[0].experts)
        guesses = [room._guess(one, nouns[1], experts, room._micro_batches(one, 64)) for one in plans]
        fits = [room._may_fit((8e9 * n, 2e9), nouns[1], one, 64) for n in (1, 9) for one in plans]
        fields = sorted({key for one in plans for key, value in one.items() if isinstance(value, (int, float))})
        splits = [len(part) for part in room._by_split(plans)]
        answers.append(
            [len(plans), folded_list(guesses), sum(fits), splits, room._sizes(nouns[1], own, nouns[0], framework)]
            + [folded_list([float(one.get(key) or 0) for one in plans]) for key in fields]
        )
    return answers


def _started(model: str, on: str, *overrides: str) -> Any:
    from windtunnel.search.start import start

    table = {"name": model, "model": model, "runtime": {"framework": "megatron-core"}, "cluster": on}
    stated = frozenset(text.partition("=")[0] for text in overrides)
    found = start(table, wt.load_model(model), overrides, stated)
    return [found.fits, *found.assumed, folded(found.job.plan.model_dump(mode="json"))]


def _searched(changes: Sequence[str], fields: dict[str, Any], objective: Any = "time", **more: Any) -> Any:
    from windtunnel.search.reasons import certificate_lines, front_lines, reason_lines

    job = wt.load(changes[0], list(changes[1:])) if changes and "=" not in changes[0] else _tiny(*changes)
    result = wt.search(job, fields, objective, processes=1, **more)
    lines = [
        *certificate_lines(replace(result.certificate, bound_s=1.0, predict_s=2.0), result),
        *front_lines(result),
        *(line for why in result.explanations for line in reason_lines(result, why)),
    ]
    answer = folded({key: item for key, item in wt.as_dict(result).items() if key not in ("job", "version")})
    return {**answer, "said": said(lines)}


OPEN = {"plan.tp": (1, 2), "plan.pp": (1, 2), "plan.micro_batch": (1, 2), "plan.recompute": ("none", "full")}
SEARCHES: dict[str, tuple[Sequence[str], dict[str, Any], Any, dict[str, Any]]] = {
    "gap": ((), OPEN, "time", {"limits": wt.SearchLimits(gap=0.2)}),
    "few": ((), OPEN, "time", {"limits": wt.SearchLimits(predictions=3)}),
    "top": ((), OPEN, "joules", {"top": 4}),
    "margin": ((), OPEN, "gpus", {"margin": 0.1}),
    "too little memory": (("model.layers=80", "cluster.node.gpu.memory=1GB"), OPEN, "time", {}),
    "margin of too little memory": (("cluster.node.gpu.memory=400MB",), OPEN, "time", {"margin": 0.9}),
    "too few days": ((), OPEN, "time", {"at_most": {"days": 1e-3}}),
    "front": (("cluster.price_per_gpu_hour=2",), OPEN | {"plan.vpp": (1, 2)}, ["time", "dollars"], {}),
    "slow nodes": (
        ("unequal.slow=[{nodes=[1],factor=1.5}]",),
        {"plan.pp": (2,), "plan.tp": (1, 2), "plan.stages": ("even", "by-speed", "light-last", "light-ends"), "plan.vpp": (1, 2)},
        "time",
        {},
    ),
    "experts": (
        ("mixtral-8x7b-64xh100", "model.layers=4", "plan.pp=1", "plan.vpp=1", "cluster.gpus=16", "plan.dp=8", "plan.tp=2",
         "plan.global_batch=32", "plan.sequence_parallel=true", "cluster.price_per_gpu_hour=2.5", "tokens=1e10"),
        {"plan.ep": (1, 2, 4, 8), "plan.etp": (1, 2), "runtime.moe_a2a_overlap": (False, True), "plan.sharding": ("none", "zero1")},
        "bill",
        {"at_most": {"days": 100.0}},
    ),
    "contexts": (
        ("plan.seq=8192", "plan.tp=1", "plan.dp=16"),
        {"plan.cp": (1, 2, 4), "plan.tp": (1, 2), "plan.sharding": ("fsdp", "zero3", "hsdp"), "plan.shard_group": (None, 4, 8)},
        "days",
        {},
    ),
    "layers that are computed again": (
        ("model.layers=8", "plan.global_batch=32", "cluster.node.gpu.memory=4GB"),
        {"plan.recompute": ("none", "selective", "full"), "plan.recompute_layers": (None, 1, 2), "plan.pp": (1, 2, 4),
         "plan.vpp": (1, 2)},
        "joules",
        {"margin": 0.05},
    ),
    "schedules": (
        ("model.layers=8", "plan.global_batch=64", "runtime.framework=megatron-core"),
        {"plan.pp": (2, 4), "plan.vpp": (1, 2), "plan.schedule": ("auto", "gpipe", "zb-h1", "zbv", "dualpipev"),
         "runtime.overlap_p2p": (False, True)},
        ["time", "joules"],
        {},
    ),
    "places": (
        ("model.layers=4", "cluster.gpus=32", "plan.global_batch=32", "plan.dp=none"),
        {"plan.placement": (("tp", "cp", "ep", "dp", "pp"), ("dp", "tp", "cp", "ep", "pp"), ("pp", "tp", "cp", "ep", "dp")),
         "plan.tp": (2, 4), "plan.pp": (1, 2), "runtime.overlap_grad_reduce": (False, True)},
        "dollars",
        {"limits": wt.SearchLimits(gap=0.05)},
    ),
    "state on the host": (
        ("plan.offload.optimizer=host", "cluster.node.gpu.memory=3GB"),
        {"plan.sharding": ("none", "zero1", "zero2"), "plan.tp": (1, 2), "plan.micro_batch": (1, 2)},
        "time",
        {},
    ),
    "mixed": (
        ("cluster.gpus=32", "plan.global_batch=64", "plan.dp=none", "model.layers=8",
         "unequal.mixed=[{nodes=[0,1],gpu='a100-sxm-80gb'}]"),
        {"plan.pp": (1, 2, 4), "plan.stages": ("even", "by-speed"), "plan.tp": (1, 2), "plan.recompute": ("none", "full")},
        "time",
        {},
    ),
    "front of many": (
        ("cluster.price_per_gpu_hour=2",),
        OPEN | {"plan.vpp": (1, 2), "plan.sharding": ("none", "zero1", "zero3"), "plan.micro_batch": (1, 2, 4)},
        ["time", "joules"],
        {},
    ),
    "own plan": (("plan.recompute=full", "plan.micro_batch=2"), {"plan.recompute": ("none", "full"), "plan.micro_batch": (1, 2)},
                 "joules", {}),
}  # fmt: skip


def _machines() -> Any:
    jobs = [_tiny(f"cluster={name}", "cluster.gpus=16") for name in ("h100-ib", "a100-ib")]
    return folded(wt.as_dict(wt.search(jobs, OPEN, "bill", at_most={"days": 3000.0}, processes=1)))


def _kept() -> Any:
    """A search that finds what an earlier one kept."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for fields in (OPEN | {"plan.recompute": ("full",)}, OPEN):
            result = wt.search(_tiny(), fields, processes=1, out=str(Path(folder) / "plans.parquet"))
            found.append([folded(result.certificate), [list(one.values) for one in result.ranked[:4]]])
    return found


def _wrong_axes() -> Any:
    """Ranges that are none."""
    from windtunnel.search.design import field_of

    texts = ("x..4GB", "1GB..y", "1..4GB", "1GB..4GB", "4GB..1GB", "2MB..4GB", "1GB,2GB")
    found = [or_refused(lambda text=text: field_of(_tiny(), "cluster.node.gpu.memory", text)) for text in texts]
    return [one[0] if isinstance(one, list) else folded(one) for one in found]


def _designed() -> Any:
    from windtunnel.search.design import Premium, field_of

    base, answers = _tiny("cluster.price_per_gpu_hour=2"), []
    for path, text in (
        ("cluster.node.gpu.memory_bandwidth", "2TB/s..8TB/s"),
        ("cluster.node.gpu.memory", "40GB..160GB"),
        ("plan.micro_batch", "1..8"),
        ("plan.recompute", "none,full"),
        ("cluster.node.gpu.memory_bandwidth", "8TB/s..2TB/s"),
        ("plan.recompute", "1..2"),
    ):
        axis = or_refused(lambda path=path, text=text: field_of(base, path, text))
        answers.append(folded(axis))
        if not isinstance(axis, list) and axis.scale != 1.0:
            answers.append(Premium(axis, 0.5).of(base, _tiny(f"{path}={axis.high * 2:g}{axis.unit}")))
    return answers


def _jobs(sources: Sequence[tuple[str, ...]]) -> Any:
    def answer(source: str, *changes: str) -> Any:
        p = wt.predict(wt.load(source, list(changes)))
        sizes = [float(stage.total) for stage in p.memory]
        return [p.step_time_s, *p.breakdown.values(), *p.overlapped.values(), sum(sizes), sizes[0], p.error_of_parts]

    return [or_refused(partial(answer, *one)) for one in sources]


PREDICTED: dict[str, tuple[tuple[str, ...], ...]] = {
    "offload": tuple(
        (*TINY, "plan.sharding=" + sharding, *(f"plan.offload.{what}={place}" for what in kept), *more)
        for sharding, kept, place, more in (
            ("none", ("optimizer",), "host", ()),
            ("fsdp", ("optimizer", "parameters"), "host", ("plan.tp=1", "plan.dp=16")),
            ("zero1", ("optimizer", "gradients"), "host", ("plan.pp=2", "plan.dp=4")),
            ("zero3", ("parameters",), "nvme", ("plan.tp=1", "plan.dp=16")),
            ("zero2", ("optimizer", "gradients"), "nvme", ()),
        )
    )
    + (
        (*TINY, "plan.offload.activations=1"),
        (*TINY, "plan.offload.activations=2", "plan.pp=2", "plan.dp=4", "plan.global_batch=32"),
    ),
    "schedules": tuple(
        (
            *TINY,
            "model.layers=8",
            "plan.pp=4",
            "plan.dp=2",
            f"plan.schedule={schedule}",
            f"plan.vpp={vpp}",
            f"runtime.overlap_p2p={p2p}",
        )
        for schedule, vpp in (
            ("auto", 1),
            ("auto", 2),
            ("gpipe", 1),
            ("breadth-first", 2),
            ("zb-h1", 1),
            ("zb-h2", 1),
            ("interleaved-zb", 2),
            ("zbv", 2),
            ("dualpipe", 1),
            ("dualpipev", 2),
        )
        for p2p in ("true", "false")
    ),
    "sharding": tuple(
        (*TINY, "plan.tp=1", "plan.dp=16", "plan.global_batch=64", f"plan.sharding={sharding}", f"runtime.{switch}", *more)
        for sharding, more in (
            ("zero1", ()),
            ("zero2", ()),
            ("zero3", ()),
            ("fsdp", ()),
            ("hsdp", ("plan.shard_group=8",)),
            ("none", ("runtime.reduce_with=all_reduce",)),
        )
        for switch in (
            "overlap_grad_reduce=false",
            "overlap_param_gather=false",
            "reduce_every_micro_batch=true",
            "launch=eager",
            "bucket=1e6",
        )
    ),
    "experts": tuple(
        (
            "mixtral-8x7b-64xh100",
            "model.layers=2",
            "plan.pp=1",
            "plan.vpp=1",
            "cluster.gpus=16",
            "plan.dp=8",
            "plan.tp=2",
            "plan.global_batch=16",
            "plan.sequence_parallel=true",
            *more,
        )
        for more in (
            ("plan.ep=8",),
            ("plan.ep=4", "plan.etp=2"),
            ("plan.ep=2", "runtime.moe_a2a_overlap=true"),
            ("plan.ep=8", "runtime.moe_dispatch=deepep"),
            ("plan.ep=8", "runtime.moe_imbalance=1.5"),
            ("plan.ep=4", "runtime.moe_grouped_gemm=each"),
            ("plan.cp=2", "plan.dp=4"),
        )
    ),
    "unequal": tuple(
        (*TINY, *more)
        for more in (
            ("unequal.slow=[{nodes=[0],factor=1.3}]",),
            ("unequal.links=[{nodes=[1],rate=0.5}]",),
            ("unequal.pauses=[{seconds=0.01,every=10}]",),
            ("unequal.jitter.sigma=0.1", "unequal.draws=3"),
            ("unequal.slow=[{share=0.5,factor=1.1}]", "plan.pp=2", "plan.dp=4"),
            ("runtime.data.sample=0.02", "runtime.data.overlap=none"),
            ("runtime.data.sample=0.05", "runtime.data.reader=node"),
        )
    ),
}


def _sensed(*changes: str) -> Any:
    answer = wt.as_dict(wt.sensitivity(_tiny(*changes)))
    return folded({key: item for key, item in answer.items() if key not in ("job", "version")})


def varied_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {f"fixes {' '.join(one)}": partial(_fixes, *one) for one in UNFIT}
    table |= {f"advice {' '.join(one)}": partial(_advised, *one) for one in ADVISED}
    table |= {f"start {' '.join(one)}": partial(or_refused, partial(_started, *one)) for one in STARTED}
    table |= {f"search {name}": partial(or_refused, partial(_searched, *one[:3], **one[3])) for name, one in SEARCHES.items()}
    table |= {f"steps of {name}": partial(_jobs, sources) for name, sources in PREDICTED.items()}
    table |= {
        "first plans": _first_plans,
        "search of machines": _machines,
        "axes of a design": _designed,
        "wrong axes": _wrong_axes,
        "kept plans": _kept,
        "sensitivity of a pipeline": partial(_sensed, "plan.pp=2", "plan.dp=4", "runtime.precision=fp8"),
    }
    return table


UNFIT = (
    ("plan.seq=32768",),
    ("plan.sharding=none", "plan.recompute=full"),
    ("cluster.gpus=16", "plan.sharding=zero1", "plan.micro_batch=4", "plan.global_batch=64", "plan.dp=16"),
    ("model=mixtral-8x7b", "cluster.gpus=16", "plan.dp=16", "plan.sharding=zero1", "plan.recompute=selective"),
    ("model=qwen3-30b-a3b", "cluster=a100-ib", "cluster.gpus=16", "plan.dp=8", "plan.tp=2", "plan.ep=2", "plan.sharding=none"),
    ("plan.recompute=none", "plan.micro_batch=2", "plan.seq=16384", "runtime.fused_cross_entropy=false"),
    ("model=llama3-70b", "cluster.gpus=64", "plan.dp=8", "plan.tp=8", "plan.sharding=none", "plan.global_batch=64"),
    ("model=llama3-70b", "cluster.gpus=16", "plan.dp=4", "plan.tp=2", "plan.pp=2", "plan.global_batch=16", "plan.sharding=none"),
)
ADVISED = (
    ("llama3-8b-8xh100", *SMALL),
    ("llama3-8b-8xh100", *SMALL, "unequal.slow=[{nodes=[0],factor=1.3}]", "runtime.launch=eager"),
    ("mixtral-8x7b-64xh100", "model.layers=4", "plan.global_batch=32", "plan.pp=4"),
    ("gpt3-175b-64", "model.layers=16", "plan.global_batch=16", "plan.vpp=1", "runtime.overlap_grad_reduce=false"),
)
STARTED = (
    ("llama3-8b", "h100-ib", "cluster.gpus=16"),
    ("mixtral-8x7b", "h100-ib", "cluster.gpus=64"),
    ("llama3-70b", "h200-ib", "plan.tp=8", "plan.dp=4"),
    ("llama3-8b", "a100-ib", "cluster.gpus=8", "plan.seq=65536", "plan.global_batch=16"),
    ("qwen3-30b-a3b", "b200-ib", "cluster.gpus=16", "plan.ep=8"),
    ("gpt3-175b", "h100-ib", "cluster.gpus=16"),
    ("llama3-8b", "h100-ib", "plan.tp=3"),
    ("llama3-8b", "h100-ib", "plan.dp=3", "cluster.gpus=16"),
)
