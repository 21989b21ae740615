"""What pages of served models and of reinforcement learning show is what the answers say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.cli import main
from windtunnel.draw.page.charts import log_ticks
from windtunnel.draw.page.sheet import page
from windtunnel.rl.sheet import step_sheet
from windtunnel.serving.drafting import times_of
from windtunnel.serving.front_sheet import command_of, front_sheet
from windtunnel.serving.lengths import Passing
from windtunnel.serving.sheet import columns_over_time, server_sheet

LOAD = {"gpus": 1, "tp": 1, "isl": 512, "osl": 64, "concurrency": 8, "requests": 40}
JOB = {
    "workload": "rl", "name": "rl", "model": "qwen2.5-0.5b", "cluster": {"base": "h100-ib", "gpus": 8},
    "rl": {"prompts": 16, "samples": 4, "response": "200~1<600"},
}  # fmt: skip


@pytest.mark.parametrize("speculate", [None, "eagle,drafts=3,rate=0.7"])
def test_a_pass_is_the_sum_of_its_parts(speculate: str | None) -> None:
    answer = wt.serve_predict("llama3.1-8b", "h100-ib", **LOAD, speculate=speculate, record=True)
    times = times_of(answer.server)
    drafts = answer.server.drafts
    for one, sampled in (
        (Passing(0, 0, 0.0, 16, 16 * 900.0, 16 * drafts), 16 * (1 + drafts)),
        (Passing(4096, 4, 4 * 1024 * 1025 / 2, 0, 0.0), 4),
    ):
        parts = times.pass_parts(one, sampled)
        assert sum(parts.values()) == pytest.approx(times.seconds(one, sampled), rel=0.02)
        assert ("drafting" in parts) == (speculate is not None)


def test_records_have_every_token_and_second() -> None:
    """Passes of a recorded answer do not overlap, have all tokens, and move no figure; thinned, tokens and time are conserved."""
    plain = wt.serve_predict("llama3.1-8b", "h100-ib", **LOAD)
    answer = wt.serve_predict("llama3.1-8b", "h100-ib", **LOAD, record=True)
    assert answer.as_dict() == plain.as_dict() and plain.detail is None
    assert answer.detail is not None
    log = answer.detail.log
    assert sum(one.tokens for one in log) == 40 * (512 + 64 - 1)
    assert all(a.end <= b.begin + 1e-9 for a, b in zip(log, log[1:], strict=False))
    columns, end = columns_over_time(log)
    width = end / len(columns["tokens"])
    assert np.sum(columns["tokens"]) * width == pytest.approx(40 * 575, rel=1e-6)
    held = sum(one.running * (one.end - one.begin) for one in log)
    assert np.sum(columns["running"]) * width == pytest.approx(held, rel=1e-6)
    assert max(columns["running"]) <= 8.0 + 1e-6


def test_pages_need_nothing_from_outside(tmp_path: Path) -> None:
    answer = wt.serve_predict("llama3.1-8b", "h100-ib", **LOAD, ttft=1.0, tpot=0.02, record=True, prefill="gpus=1,tp=1")
    found = wt.serve_search("llama3.1-8b", "h100-ib", 2, isl=512, osl=64, users=(1, 8), tpot=1e-2, prefill=True, processes=1)
    tried = wt.rl_splits({**JOB, "rl": {**JOB["rl"], "mode": "split", "rollout": {"gpus": 4}}}, record=True)
    texts = [
        page(server_sheet(answer)), page(front_sheet(found, ["llama3.1-8b", "--on", "h100-ib"])),
        page(step_sheet(wt.rl_predict(JOB, record=True))), page(step_sheet(tried[0][1], tried)),
    ]  # fmt: skip
    for text in texts:
        assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text
        assert "nan" not in text.split("<script", 1)[0].replace("nance", "")


def test_the_command_of_a_point_is_that_point() -> None:
    asked = ["llama3.1-8b", "--on", "h100-ib", "--isl", "512", "--osl", "64"]
    found = wt.serve_search(
        "llama3.1-8b",
        "h100-ib",
        2,
        isl=512,
        osl=64,
        users=(4,),
        speculate=["eagle,drafts=2,accepted=2.1"],
        prefill=True,
        processes=1,
    )
    for one in found.choices:
        words = command_of(one, asked).split()
        assert main([*words[1:], "--json", "/dev/null", "--quiet"]) == 0
        assert ("--prefill" in words) == one.has_sides and "eagle,drafts=2,accepted=2.1" in words


def test_logarithmic_ticks_are_round_and_inside() -> None:
    assert log_ticks(3.0, 240.0) == [5.0, 10.0, 20.0, 50.0, 100.0, 200.0]
    assert all(61.0 <= tick <= 64.0 for tick in log_ticks(61.0, 64.0))


def test_a_page_has_a_name_that_ends_in_html(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["serve-predict", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--requests", "4", "--html"]
    assert main([*command, str(tmp_path / "page.txt")]) != 0
    assert ".html" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "page.html"), "--quiet"]) == 0
    assert "Where a pass" in (tmp_path / "page.html").read_text(encoding="utf-8")
