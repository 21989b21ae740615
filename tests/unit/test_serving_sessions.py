"""Sessions: turns wait for answers and pauses, prefixes grow, users follow one another; and the records of requests."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.base.errors import FileError, SpecError
from windtunnel.serving import ServePlan, serve, server_of
from windtunnel.serving.load import drawn_load
from windtunnel.serving.sessions import BLOCK, SharedPrefix, drawn_sessions, read_sessions, shared_of, with_shared_prefix
from windtunnel.serving.simulate import run_lane
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model

SERVER = server_of(load_model("llama3.1-8b"), "h100-ib", 1, "vllm", ServePlan())
TIMES = StepTimes(SERVER)


def test_a_turn_begins_with_all_that_its_session_had() -> None:
    load = drawn_sessions(100, 20, 3, 5, sessions=2, rate=1.0, shared=SharedPrefix(256))
    assert load.prompt.tolist() == [356, 476, 596] * 2
    assert load.after is not None and load.after.tolist() == [-1, 0, 1, -1, 3, 4]
    first, second = load.blocks[1], load.blocks[4]
    assert len(first) == (476 + 20) // BLOCK and first[:2] == second[:2] == (1, 2) and first[2] != second[2]
    assert load.blocks[2][: len(first)] == first


def test_a_turn_waits_for_its_answer_and_its_pause() -> None:
    load = drawn_sessions(500, 50, 4, 3, sessions=5, rate=2.0)
    result = run_lane(TIMES, load, 200_000)
    assert load.after is not None
    later = load.after >= 0
    assert result.sent[later] - result.last[load.after[later]] == pytest.approx(3.0)
    known = load.prompt[load.after[later]] + load.output[load.after[later]]
    assert bool((result.reused[later] >= known - 2 * BLOCK).all()) and result.hits == int(result.reused.sum())


def test_users_begin_a_session_when_their_last_one_has_ended() -> None:
    load = drawn_sessions(50, 10, 2, 1, sessions=6, users=2)
    assert load.after is not None and load.after.tolist() == [-1, 0, -1, 2, 1, 4, 3, 6, 5, 8, 7, 10]
    result = run_lane(TIMES, load, 200_000)
    there = (result.sent[:, None] <= result.sent[None, :]) & (result.last[:, None] > result.sent[None, :])
    assert int(there.sum(axis=0).max()) <= 2


def test_sessions_stay_on_their_lane() -> None:
    load = drawn_sessions(300, 20, 3, 1, sessions=9, rate=3.0)
    parts = [load.part(lane, 2) for lane in range(2)]
    assert sum(len(part) for part in parts) == len(load)
    for part in parts:
        assert part.after is not None and part.pauses is not None
        later = part.after >= 0
        assert bool((part.prompt[later] == (part.prompt + part.output)[part.after[later]] + 300).all())
    two = server_of(load_model("llama3.1-8b"), "h100-ib", 2, "vllm", ServePlan())
    assert serve(two, load).prefix_hits == pytest.approx(serve(SERVER, load).prefix_hits, abs=0.02)


def test_a_system_prompt_is_computed_once() -> None:
    plain = drawn_load(300, 20, requests=200, rate=5.0)
    shared = with_shared_prefix(plain, SharedPrefix(1024, 0.5))
    has = shared.prompt > plain.prompt
    assert 70 < int(has.sum()) < 130
    result = run_lane(TIMES, shared, 200_000)
    assert bool((result.reused[has][5:] == 1024).all()) and not result.reused[~has].any()
    with pytest.raises(SpecError, match="names no blocks"):
        with_shared_prefix(shared, SharedPrefix(10))
    assert shared_of("2000:0.5") == SharedPrefix(2000, 0.5)


def test_a_file_of_sessions(tmp_path: Path) -> None:
    path = tmp_path / "agents.csv"
    path.write_text(
        "session_id,arrival,wait,isl,osl\na,10,,1000,50\nb,11,,800,40\na,,2.5,1300,60\na,,1,1500,9\nb,,x,900,0\nb,,x,many,7\n"
    )
    load = read_sessions(path)
    assert load.prompt.tolist() == [1000, 1300, 1500, 800] and load.arrival[[0, 3]].tolist() == [0.0, 1.0]
    assert load.pauses is not None and load.pauses.tolist() == [0.0, 2.5, 1.0, 0.0]
    assert load.notes == ("2 of 6 rows have no lengths and were left out",)
    lines = [{"session_id": "s", "timestamp": 2000, "input_length": 1024, "output_length": 8, "hash_ids": [7, 8]},
             {"session_id": "s", "delay": 500, "input_length": 1536, "output_length": 8, "hash_ids": [7, 8, 9]}]  # fmt: skip
    moon = tmp_path / "moon.jsonl"
    moon.write_text("\n".join(map(json.dumps, lines)))
    found = read_sessions(moon)
    assert found.block == 512 and found.blocks == ((7, 8), (7, 8, 9)) and found.pauses is not None and found.pauses[1] == 0.5
    assert run_lane(TIMES, found, 200_000).reused.tolist() == [0, 1024]
    path.write_text("isl,osl\n1,2\n")
    with pytest.raises(FileError, match="session"):
        read_sessions(path)
    path.write_text("session,isl,osl\na,10,2\n")
    with pytest.raises(FileError, match="a moment"):
        read_sessions(path)
    assert len(read_sessions(path, users=1)) == 1


@pytest.mark.parametrize("verb", ["serve_predict", "serve_fleet"])
def test_both_verbs_take_sessions_and_write_records(verb: str, tmp_path: Path) -> None:
    users: dict[str, Any] = {"concurrency": 4} if verb == "serve_predict" else {"users": 4, "replicas": 1}
    path = tmp_path / "out.csv"
    answer = getattr(wt, verb)(
        "llama3.1-8b", "h100-ib", tp=1, isl=400, osl=20, turns=3, think=1, requests=24, requests_out=str(path), **users
    )
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24 and answer.prefix_hits > 0.4
    ttft = np.array([float(row["ttft_s"]) for row in rows])
    assert float(ttft.mean()) == pytest.approx(answer.ttft.mean, abs=1e-6)
    assert float(np.quantile(ttft, 0.9)) == pytest.approx(answer.ttft.p90, abs=1e-6)
    assert sum(int(row["cached_tokens"]) for row in rows) / sum(int(row["prompt_tokens"]) for row in rows) == pytest.approx(
        answer.prefix_hits
    )
    assert all(float(row["e2e_s"]) == pytest.approx(float(row["ttft_s"]) + 19 * float(row["tpot_s"]), abs=1e-4) for row in rows)
