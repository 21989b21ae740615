"""The core serves any load as Python does: the same requests in the same passes, the same blocks; times to their last bits."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import EngineError
from windtunnel.serving import ServePlan, server_of
from windtunnel.serving.cache import OWN
from windtunnel.serving.core import run_on_core
from windtunnel.serving.drafting import times_of
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.engines.vllm import Vllm
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.simulate import FRONT, HANDLE, RUN, TOKENISE, LaneResult, most_tokens, run_ranks, run_ranks_here
from windtunnel.serving.speculation import Speculation
from windtunnel.serving.step_times import StepTimes
from windtunnel.serving.tiers import CacheTier
from windtunnel.spec import load_model

SAME = ("steps", "hits", "preempted", "recomputed", "verified", "rejected", "tier_hits", "peak", "mean_batch")
"""Numbers that are equal; seconds are to 1e-12 of themselves, since numpy has powers of its own on machines with wide vectors."""

MODELS: dict[str, tuple[str, ServePlan, dict[str, Any]]] = {
    "dense": ("llama3.2-1b", ServePlan(), {}),
    "windows": ("gemma3-4b", ServePlan(), {}),
    "latent": ("deepseek-v2-lite", ServePlan(), {}),
    "indexer": ("deepseek-v4-flash", ServePlan(tp=8), {"weights": "fp8_block"}),
    "recurrence": ("nemotron-h-8b", ServePlan(), {}),
    "eagle": ("llama3.2-1b", ServePlan(), {"speculation": Speculation("eagle", 3, 2.4)}),
    "draft": ("llama3.1-8b", ServePlan(), {"speculation": Speculation("draft", 2, 1.7, load_model("llama3.2-1b"))}),
    "ranks": ("mixtral-8x7b", ServePlan(dp=4, ep=4), {}),
    "drafting ranks": ("mixtral-8x7b", ServePlan(dp=4, ep=4), {"speculation": Speculation("eagle", 1, 1.5)}),
}


@cache
def times_for(kind: str, engine: str) -> StepTimes:
    model, plan, more = MODELS[kind]
    times = times_of(server_of(load_model(model), "h100-ib", plan.gpus, engine, plan, **more))
    times.seconds(Passing(3, 1, 6.0, 2, 9.0, 2 * times.server.drafts), 3 + 2 * times.server.drafts)  # its tables are made once
    return times


@st.composite
def limited(draw: st.DrawFn) -> StepTimes:
    """Passes of an engine whose limits are so tight that they matter."""
    made = times_for(draw(st.sampled_from(list(MODELS))), draw(st.sampled_from(list(ENGINES))))
    engine, tokens = made.server.engine, draw(st.integers(20, 90))
    engine = replace(
        engine, step_tokens=tokens, prefill_chunk=tokens if engine.prefill_chunk else 0, running=draw(st.integers(1, 12)),
        block=draw(st.sampled_from([1, 4, 16])), polls=draw(st.sampled_from([1, 1, 5])), reserves_prompt=draw(st.booleans()),
        keeps_blocks=draw(st.booleans()), ahead=draw(st.booleans()), graph_tokens=draw(st.sampled_from([0, 8, 512])),
        captures_prompts=draw(st.booleans()), request_gap=draw(st.sampled_from([0.0, 1e-4])),
        sent=draw(st.sampled_from([0.0, 3e-3])),
        graphs=draw(st.sampled_from([(), (), (1, 2, 5)])), cuts_prompts=draw(st.booleans()),
    )  # fmt: skip
    times = copy(made)  # with its tables, which depend on none of these but how many sizes they have
    times.server, times.on_core = replace(made.server, engine=engine), {}
    vars(times).pop("graph_sizes", None)
    return times


@st.composite
def loads(draw: st.DrawFn) -> ServeLoad:
    """Requests of users or at moments, with or without shared prompts, in sessions or alone."""
    lengths = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 200)), min_size=1, max_size=25))
    prompt, output = (np.array(part, np.int64) for part in zip(*lengths, strict=True))
    count = len(prompt)
    gaps = draw(st.none() | st.lists(st.floats(0.0, 0.3), min_size=1, max_size=5))
    arrival = np.zeros(0) if gaps is None else np.cumsum(np.resize(gaps, count))
    load = ServeLoad(prompt, output, arrival, 0 if gaps is not None else draw(st.integers(1, 9)))
    if draw(st.booleans()):
        trees, size = draw(st.integers(1, 3)), draw(st.sampled_from([4, 16, 32]))
        names = tuple(tuple(1000 * (n % trees) + part for part in range(260 // size)) for n in range(count))
        load = replace(load, blocks=names, block=size, outputs_named=draw(st.booleans()))
    if gaps is not None and draw(st.booleans()):
        after = np.array([n - 3 if n >= 3 and n % 2 else -1 for n in range(count)], np.int64)
        load = replace(load, after=after, pause=draw(st.floats(0.0, 0.1)))
        load = replace(load, pauses=np.linspace(0.0, 0.2, count) if draw(st.booleans()) else None)
    return load


def assert_equal(core: LaneResult, here: LaneResult) -> None:
    for name in SAME:
        assert getattr(core, name) == getattr(here, name), name
    for name in ("reused", "losses"):
        assert getattr(core, name).tolist() == getattr(here, name).tolist(), name
    for name in ("sent", "first", "last", "busy", "prompt_seconds"):
        assert getattr(core, name) == pytest.approx(getattr(here, name), rel=1e-12, abs=1e-15), name
    assert [one[2:] for one in core.log] == [one[2:] for one in here.log]
    moments = [[(one.begin, one.end) for one in result.log] for result in (core, here)]
    assert np.array(moments[0]) == pytest.approx(np.array(moments[1]), rel=1e-12, abs=1e-15)


def served(
    run: Callable[..., list[LaneResult]], times: StepTimes, asked: list[ServeLoad], tokens: int, counts: list[int]
) -> list[LaneResult]:
    """What a run says; nothing where a cache is so small that requests stay behind."""
    try:
        return run(times, asked, tokens, counts, record=True)
    except (AssertionError, EngineError) as error:
        assert "requests were left behind" in str(error)
        return []


@examples(120)
@given(limited(), st.lists(loads(), min_size=1, max_size=3), st.integers(0, 30), st.sampled_from([1, 2]))
def test_the_core_chooses_every_pass_as_python_does(times: StepTimes, asked: list[ServeLoad], spare: int, count: int) -> None:
    asked = asked if times.server.plan.dp > 1 else asked[:1]
    longest = max(int((load.prompt + load.output).max()) for load in asked)
    tokens = longest + 4 * times.server.engine.block + 4 * times.server.drafts + spare * 16
    assert most_tokens(times, tokens) >= longest
    counts = [count] * len(asked)
    core, here = (served(run, times, asked, tokens, counts) for run in (run_ranks, run_ranks_here))
    assert len(core) == len(here)
    for ran, expected in zip(core, here, strict=True):
        assert_equal(ran, expected)


class CarefulVllm(Vllm):
    """Rules of someone else that look like vLLM's."""


class SlowTimes(StepTimes):
    """Passes of someone else."""

    def seconds(self, one: Passing, sampled: int) -> float:
        return 2.0 * super().seconds(one, sampled)


def test_python_runs_what_the_core_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    times = times_for("dense", "vllm")
    load = ServeLoad(np.array([40, 8]), np.array([5, 9]), np.zeros(2), blocks=((1, 2), (1,)), block=16)
    limits = {"front": FRONT, "handle": HANDLE, "tokenise": TOKENISE, "run": RUN, "record": False}

    def core(passes: StepTimes, asked: ServeLoad) -> bool:
        return run_on_core(passes, [asked], 100, [1], limits) is not None

    assert core(times, load)
    assert not core(times, replace(load, blocks=((OWN, 2), (1,))))
    assert not core(times, replace(load, blocks=((1 << 70, 2), (1,))))
    assert not core(times, replace(load, output=np.array([0, 9])))
    assert not core(StepTimes(replace(times.server, tiers=(CacheTier("host", 1e12, 5e10, 0.0),))), load)
    slow = SlowTimes(times.server)
    assert not core(slow, load)
    assert run_ranks(slow, [load], 1600)[0].busy > 1.8 * run_ranks(times, [load], 1600)[0].busy
    monkeypatch.setattr(type(ENGINES["vllm"]), "rules", lambda engine, limits: CarefulVllm(limits))
    assert not core(times, load)
    assert_equal(*(run(times, [load], 1600, record=True)[0] for run in (run_ranks, run_ranks_here)))
