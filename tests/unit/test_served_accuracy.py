"""Errors to state of a served model and of a step of reinforcement learning: the record, its use, and how many rows it holds.

`served_rows.csv`: loads of servers that the record leaves out, as published in silicon_sample.csv of ai-dynamo/aiconfigurator
(Apache-2.0); sources are shortened to whether a row is of the public benchmark, and its users.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import norm

import windtunnel as wt
from windtunnel.draw.page.sheet import page as page_of
from windtunnel.draw.terminal import print_sheet
from windtunnel.predict.published import AT_MOST
from windtunnel.rl.answer import steps_like
from windtunnel.rl.mode import MODES
from windtunnel.rl.sheet import step_sheet
from windtunnel.serving import ServePlan, serve, server_of
from windtunnel.serving.front_sheet import front_sheet
from windtunnel.serving.load import drawn_load
from windtunnel.serving.published import (
    CARRIED,
    FIGURES,
    UNLIKE,
    FigureErrors,
    FirstSpreads,
    FirstToken,
    ServerKind,
    catalogue_servers,
    catalogue_spreads,
    errors_of_figure,
    first_widening,
    fit_spreads,
    kinds_around,
    record_text,
    servers_like,
)
from windtunnel.serving.sheet import server_sheet
from windtunnel.sheet.numbers import count_words
from windtunnel.spec import load_model

ROWS = Path(__file__).with_name("served_rows.csv")
STEP = {
    "workload": "rl",
    "model": "qwen2.5-1.5b",
    "cluster": {"base": "h100-ib", "gpus": 8},
    "rl": {"prompts": 16, "samples": 4, "mini_batch": 16, "prompt": 100, "response": "300~0.5<600"},
}


def benchmark() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "served.py"
    spec = importlib.util.spec_from_file_location("served_benchmark", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_servers_that_the_record_leaves_out_lie_inside_as_often_as_it_says() -> None:
    """Seven of ten by the record's words; of these loads of 14 servers at least half and no more than nine of ten."""
    served = benchmark()
    with ROWS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[::2]
    inside: dict[str, list[bool]] = {name: [] for name in FIGURES}
    for row in rows:
        answer = served.predict_row(row)
        one = served.ServedRow(row, answer.ttft.mean, answer.tpot.mean, kind=answer.kind)
        assert one.is_held_out
        for name, error in one.errors().items():
            stated = answer.relative_errors()[name]
            assert stated is not None
            inside[name].append(abs(error) <= stated)
    for some in inside.values():
        assert 0.5 <= sum(some) / len(some) <= 0.9


@given(st.lists(st.floats(-0.95, 3.0), min_size=3, max_size=60))
def test_a_stated_error_holds_as_many_rows_as_it_says(errors: list[float]) -> None:
    """No more than AT_MOST lie strictly inside; those inside have their measured value in the band of the predicted one."""
    one = errors_of_figure(errors)
    assert sum(100.0 * abs(error) < one.inside_pct * (1.0 - 1e-9) for error in errors) <= AT_MOST * len(errors) + 1e-9
    assert one.longer_pct[0] <= one.longer_pct[1]
    for error in errors:
        low, high = one.band(1.0 + error)  # predicted, where 1 was measured
        if abs(error) <= one.error * (1.0 - 1e-9):
            assert low <= 1.0 <= high
    assert FigureErrors(0.0, 0.0, 100.0, (0.0, 0.0)).band(2.0) == (1.0, math.inf)


def test_a_first_token_s_error_is_that_of_its_parts() -> None:
    """By hand: 0.1 s of host, 0.4 of its own pass, 1.5 of waiting; 0.08 s, 40 % and 30 % of which may be off."""
    first, spreads = FirstToken(0.1, 0.4, 1.5), FirstSpreads(0.08, 0.4, 0.3)
    assert spreads.of(first) == pytest.approx({"host": 0.04, "own": 0.08, "wait": 0.225})
    assert spreads.spread(first) == pytest.approx(math.sqrt(0.04**2 + 0.08**2 + 0.225**2))
    line = replace(next(iter(catalogue_servers().values())), widen=2.0)
    longer = 2.0 * spreads.spread(first)
    assert line.first_error(first, spreads) == pytest.approx(longer / (1.0 + longer))
    cold = replace(first, cold=0.1, engine="sglang")
    both = replace(spreads, cold={"sglang": 20.0, "vllm": 1.0})
    assert both.of(cold) == pytest.approx({**spreads.of(first), "cold": 20.0 * 0.1 / 2.0}) and both.of(first) == spreads.of(first)
    slower = FirstToken(1.0, 4.0, 15.0)  # the same shares, so that seconds of the host matter less
    assert line.first_error(slower, spreads) < line.first_error(first, spreads)


def test_spreads_are_found_again_in_drawn_errors() -> None:
    """Measured first tokens are longer by what their parts add: the fit finds each, and seven of ten lie inside."""
    draw = np.random.default_rng(7)
    firsts = [FirstToken(0.01, float(own), float(wait)) for own, wait in 10.0 ** draw.uniform(-2.0, 1.0, (4000, 2))]
    true = FirstSpreads(0.06, 0.4, 0.2)
    bound = norm.ppf(0.85)  # seven of ten lie within it on both sides
    longer = [abs(draw.normal()) / bound * true.spread(first) for first in firsts]
    errors = [1.0 / (1.0 + one) - 1.0 for one in longer]
    found = fit_spreads(firsts, errors)
    for name in ("host", "own", "wait"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.15)
    assert first_widening(found, firsts, errors) == pytest.approx(1.0, rel=0.1) and not found.cold


def test_seconds_for_which_cold_servers_wait_are_found_by_engine() -> None:
    """Ten cold servers of an engine, of which seven and the next need no more than 30 s; warm ones set the other spreads."""
    warm = [FirstToken(0.01, 0.1, wait) for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)]
    cold = [FirstToken(0.0, 0.0, 1.0, 0.1, "sglang")] * 10
    errors = [1.0 / (1.0 + 0.1 * seconds) - 1.0 for seconds in (1, 5, 9, 13, 17, 21, 25, 30, 90, 99)]
    alone, found = fit_spreads(warm, [-0.2] * 6), fit_spreads([*warm, *cold], [-0.2] * 6 + errors)
    assert (found.host, found.own, found.wait) == (alone.host, alone.own, alone.wait) and set(found.cold) == {"sglang"}
    assert found.cold["sglang"] == pytest.approx(math.sqrt(30.0**2 - (alone.spread(cold[0]) / 0.1) ** 2), rel=0.01)


def test_the_record_is_read_as_it_is_written() -> None:
    lines = list(catalogue_servers().values())
    table = tomllib.loads(record_text(lines, catalogue_spreads(), "a table"))
    assert FirstSpreads(**table["first_token"]) == catalogue_spreads()
    assert [entry["rows"] for entry in table["servers"]] == [line.rows for line in lines]
    again = FigureErrors(**table["servers"][0]["tpot"] | {"longer_pct": tuple(table["servers"][0]["tpot"]["longer_pct"])})
    assert again == lines[0].figures["tpot"]


def test_the_nearest_servers_speak_and_sides_never_stand_in_for_each_other() -> None:
    table = catalogue_servers()
    measured = next(kind for kind in table if kind.gpu and kind.engine)
    assert servers_like(measured) is table[measured]
    unknown = servers_like(ServerKind("no GPU", measured.engine, measured.trained, "together"))
    assert unknown is not None and unknown.kind == ServerKind("", measured.engine, measured.trained, "together")
    together = {kind: line for kind, line in table.items() if kind.sides == "together"}
    assert servers_like(ServerKind("", "", "dense", "apart"), together) is None


def test_drafting_and_cold_servers_have_errors_of_their_own() -> None:
    """Both fall back on plain ones, cold ones on no other engine's cold ones; carried kernels outweigh both."""
    plain = ServerKind("NVIDIA B200 SXM 180 GB", "sglang", "experts", "together")
    drafting, cold, carried = replace(plain, drafts="some"), replace(plain, start="cold"), replace(plain, gpu=CARRIED)
    ordered = kinds_around(plain)
    assert kinds_around(drafting) == (*(replace(one, drafts="some") for one in ordered), *ordered)
    first = [replace(one, start="cold") for one in ordered if one.engine]
    assert kinds_around(cold) == (*first, *ordered)
    assert kinds_around(replace(carried, drafts="some", start="cold")) == kinds_around(carried)
    table = catalogue_servers()
    stated = [servers_like(kind, table) for kind in (plain, cold, drafting)]
    errors = [line.figures["tpot"].error for line in stated if line is not None]
    assert errors == sorted(errors) and len({line.kind for line in stated if line is not None}) == 3


def test_an_answer_s_kind_says_whether_it_drafts_and_starts_cold() -> None:
    """SGLang compiles kernels for its first requests; by the record vLLM does not."""
    size: dict[str, Any] = {"gpus": 1, "isl": 64, "osl": 8, "concurrency": 2}
    speculate = "eagle,drafts=2,accepted=2"
    assert wt.serve_predict("llama3.1-8b", "h100-ib", speculate=speculate, **size).kind.drafts == "some"
    for engine, start in (("sglang", "cold"), ("vllm", "warm")):
        server = server_of(load_model("llama3.1-8b"), "h100-ib", 1, engine, ServePlan())
        for cold, said in ((True, start), (False, "warm")):
            answer = serve(server, replace(drawn_load(64, 8, concurrency=2, requests=4), cold=cold))
            assert (answer.kind.drafts, answer.kind.start) == ("none", said)


def test_answers_say_their_errors_everywhere() -> None:
    """Text, JSON and page of serve-predict; table and page of serve-search."""
    answer = wt.serve_predict("llama3.1-8b", "h100-ib", gpus=1, isl=256, osl=64, concurrency=4, record=True)
    errors = answer.relative_errors()
    assert errors["dollars"] == errors["throughput"] == errors["e2e"] and errors["ttft"] != errors["tpot"]
    table = answer.as_dict()
    assert table["relative_errors"] == errors and table["published"]["rows"] > 0
    text = io.StringIO()
    print_sheet(server_sheet(answer), Console(file=text, width=200))
    assert all(f"{100 * (errors[name] or 0.0):.0f} %" in text.getvalue() for name in ("ttft", "tpot", "throughput"))
    page = page_of(server_sheet(answer))
    for name in ("ttft", "tpot", "throughput", "dollars"):
        assert f"±{100 * (errors[name] or 0.0):.0f} %" in page
    assert "measured servers" in page and "How good" in page
    found = wt.serve_search("llama3.1-8b", "h100-ib", gpus=1, isl=256, osl=64, users=(1, 8))
    assert f"{100 * (errors['throughput'] or 0.0):.0f} %" in page_of(front_sheet(found))


def test_a_load_that_comes_at_stated_moments_sets_throughput_itself() -> None:
    """Few requests a second: the server waits for them, and a slower one would give as many tokens. Too many: it would not."""
    calm = wt.serve_predict("llama3.1-8b", "h100-ib", gpus=1, isl=256, osl=64, rate=0.5, requests=40)
    assert calm.paced and calm.relative_errors()["throughput"] is None and calm.relative_errors()["dollars"] is None
    assert calm.relative_errors()["tpot"] is not None
    flood = wt.serve_predict("llama3.1-8b", "h100-ib", gpus=1, isl=2048, osl=256, rate=400.0, requests=400)
    assert not flood.paced and flood.relative_errors()["throughput"] is not None


def test_a_step_says_its_error() -> None:
    for mode in MODES:
        assert steps_like(mode) is not None
    step = wt.rl_predict(STEP)
    assert step.relative_error == steps_like("colocated").step.error  # type: ignore[union-attr]
    assert step.as_dict()["relative_error"] == step.relative_error
    page = page_of(step_sheet(step))
    assert f"±{100 * (step.relative_error or 0.0):.0f} %" in page and "published steps" in page
    assert "1 update<" in page or "1 update " in page


@pytest.mark.parametrize(
    "number, noun, words",
    [(1, "update", "1 update"), (0, "update", "0 updates"), (2, "copy", "2 copies"), (1, "copy", "1 copy"), (3, "key", "3 keys"),
     (1024, "GPU", "1,024 GPUs")],
)  # fmt: skip
def test_nouns_follow_their_numbers(number: int, noun: str, words: str) -> None:
    assert count_words(number, noun) == words


@pytest.mark.parametrize(
    "machine, gpus, users, reason",
    [("h100-ib", 1, 4, ""), ("h100-ib", 1, 200, "users"), ("h100-ib", 16, 4, "NICs"), ("mi300x-roce", 1, 4, "maker")],
)
def test_a_server_like_no_measured_one_states_a_wider_error(machine: str, gpus: int, users: int, reason: str) -> None:
    answer = wt.serve_predict("llama3.1-8b", machine, gpus=gpus, tp=gpus, isl=64, osl=8, concurrency=users, requests=users)
    narrow, stated = servers_like(answer.kind), answer.relative_errors()
    assert narrow is not None and all(reason in words for words in answer.unlike) and bool(answer.unlike) == bool(reason)
    assert answer.first is not None
    for name in FIGURES:
        inside = narrow.first_error(answer.first) if name == "ttft" else narrow.figures[name].error
        assert stated[name] == pytest.approx(max(inside, UNLIKE / 100.0) if reason else inside)
    text = io.StringIO()
    print_sheet(server_sheet(answer), Console(file=text, width=250))
    assert ("At least ±35 % is stated" in text.getvalue()) == bool(reason)


@pytest.mark.parametrize(
    ("machine", "gpus", "dp", "over"), [("h200-ib", 8, 8, False), ("h200-ib", 16, 4, True), ("gb200-nvl72", 16, 16, False)]
)
def test_experts_over_nics_are_like_no_measured_server(machine: str, gpus: int, dp: int, over: bool) -> None:
    """All ranks of a copy share its experts, those of DP attention too."""
    words = {"engine": "sglang", "tp": gpus // dp, "dp": dp, "ep": gpus, "weights": "fp8_block"}
    answer = wt.serve_predict("deepseek-v3", machine, gpus=gpus, isl=64, osl=8, concurrency=16, requests=16, **words)
    assert ("a group of ranks over NICs" in answer.unlike) is over
