"""A server by its own measured passes: the law that is fitted to them, what users see by it, and vLLM's own server beside it.

`vllm_server_passes.csv` and `vllm_server_loads.json` were measured by `benchmarks/vllm_server.py`: vLLM 0.32's own server in its
build for CPUs, all of it real but the weights, on two cores of a Xeon, the quickest of four rounds.
Passes are those of loads that are not predicted.
"""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.base.errors import WindtunnelError
from windtunnel.serving.engine import UNHIDDEN
from windtunnel.serving.lengths import Passing
from windtunnel.serving.measured_passes import COLUMNS, fit_passes, read_passes
from windtunnel.serving.simulate import FRONT, TOKENISE

HERE = Path(__file__).parent
PASSES = HERE / "vllm_server_passes.csv"
LOADS: list[dict[str, Any]] = json.loads((HERE / "vllm_server_loads.json").read_text(encoding="utf-8"))


@cache
def benchmark() -> ModuleType:
    path = HERE.parents[1] / "benchmarks" / "vllm_server.py"
    spec = importlib.util.spec_from_file_location("vllm_server", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder: Path, rows: list[tuple[float, ...]], columns: tuple[str, ...] = COLUMNS) -> str:
    path = folder / "passes.csv"
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return str(path)


def steady(seconds: float = 0.01) -> list[tuple[float, ...]]:
    """Passes over 100 prompt tokens and of one decoding request, which all take as long."""
    prompt, decode = (seconds, 100, 1, 5050, 0, 0), (seconds, 0, 0, 0, 1, 120)
    return [prompt if number % 5 == 0 else decode for number in range(40)]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load["load"]["name"])
def test_five_loads_of_vllms_server_are_predicted_within_15_percent(load: dict[str, Any]) -> None:
    for name, (predicted, measured) in benchmark().figures_of(load, PASSES).items():
        assert abs(predicted / measured - 1.0) <= 0.15, (name, predicted, measured)


def test_a_law_is_found_again() -> None:
    """4 ms, 30 us a token to 128 and 10 us further on, 0.2 ms a decoding request, 2 ns a pair, 50 ns a cached token; passes of 1
    to 1,000 tokens."""
    draws = np.random.default_rng(1)
    prompt, decodes = draws.integers(0, 900, 300).astype(float), draws.integers(0, 64, 300).astype(float)
    chunks, pairs = np.sign(prompt), prompt * draws.integers(1, 3000, 300)
    cached = decodes * draws.integers(1, 4000, 300)
    sizes = np.stack([prompt, chunks, pairs, decodes, cached], axis=1)
    tokens = prompt + decodes
    seconds = 4e-3 + 30e-6 * np.minimum(tokens, 128) + 10e-6 * np.maximum(tokens - 128, 0) + 2e-4 * decodes
    seconds += 2e-9 * pairs + 5e-8 * cached
    law = fit_passes(seconds, sizes)
    assert law.error < 1e-6 and law.passes == 300 and not law.has_gaps
    by_hand = 4e-3 + 30e-6 * 128 + 10e-6 * (510 - 128) + 2e-4 * 10 + 2e-9 * 125_250 + 5e-8 * 3000
    assert law.seconds(Passing(500, 1, 125_250.0, 10, 3000.0)) == pytest.approx(by_hand, rel=1e-6)


def test_host_time_lies_between_passes_that_go_on() -> None:
    """Passes of 10 ms that follow on each other after 2 ms, and a pause of a second before each prompt, which is none of it."""
    rows, begins, now = steady(), [], 0.0
    for row in rows:
        now += 1.0 if row[1] else 0.0
        begins.append(now)
        now += 0.012
    columns = np.array(rows)
    law = fit_passes(columns[:, 0], columns[:, 1:], np.array(begins))
    assert law.has_gaps and law.seconds(Passing(0, 0, 0.0, 1, 120.0)) == pytest.approx(0.012, rel=1e-3)


@pytest.mark.parametrize("sync", [False, True])
def test_a_request_alone_takes_its_passes(tmp_path: Path, sync: bool) -> None:
    """One user, passes of 10 ms: a first token after the front end and one pass, further ones after a pass each. Without host time
    in the record the engine's own comes between them."""
    said = wt.serve_predict(
        "llama3.1-8b", "h100-ib", isl=100, osl=20, concurrency=1, requests=3, sync=sync, passes=write(tmp_path, steady())
    )
    gap = said.server.engine.gap + said.server.engine.request_gap
    assert said.tpot.mean == pytest.approx(0.01 + gap, rel=1e-3)
    assert said.ttft.mean == pytest.approx(FRONT + 100 * TOKENISE + 0.01 + said.server.engine.gap, rel=1e-3)
    assert (said.server.engine.gap == UNHIDDEN) is sync and said.server.engine.ahead is not sync
    assert any("40 measured ones" in note for note in said.notes)


def test_the_line_of_a_server_says_that_nothing_is_scheduled_ahead() -> None:
    for flag, ahead in (("", True), (" --no-async-scheduling", False)):
        said = wt.serve_predict(f"vllm serve Qwen/Qwen3-8B -tp 1{flag}", "h100-ib", concurrency=1, requests=2, osl=4)
        assert said.server.engine.ahead is ahead


@pytest.mark.parametrize(
    "rows, columns, words",
    [
        (steady()[:19], COLUMNS, "20 passes or more"),
        (steady(), ("time", *COLUMNS[1:]), "columns seconds, prompt"),
        ([*steady(), (-1.0, 100, 1, 5050, 0, 0)], COLUMNS, "none below zero"),
        ([*steady(), (float("nan"), 100, 1, 5050, 0, 0)], COLUMNS, "finite numbers"),
        ([*steady(), ("soon", 100, 1, 5050, 0, 0)], COLUMNS, "a number in every column"),
        ([], COLUMNS, "columns seconds, prompt"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, rows: list[tuple[Any, ...]], columns: tuple[str, ...], words: str) -> None:
    with pytest.raises(WindtunnelError, match=words):
        read_passes(write(tmp_path, rows, columns))


@pytest.mark.parametrize(
    "asked, words",
    [
        ({"prefill": "gpus=1,tp=1", "tp": 1}, "Leave out --prefill"),
        ({"speculate": "eagle,drafts=2,rate=0.5", "tp": 1}, "without drafted tokens"),
        ({"pp": 2, "tp": 1, "gpus": 2}, "one stage"),
    ],
)
def test_servers_whose_passes_are_others_are_refused(tmp_path: Path, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(WindtunnelError, match=words):
        wt.serve_predict("llama3.1-8b", "h100-ib", passes=write(tmp_path, steady()), **asked)
