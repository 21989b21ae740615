"""A search of servers: what the front is, that no process changes it, and what cannot be."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

import windtunnel as wt
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.cli import main
from windtunnel.serving import ServePlan, serve, server_of
from windtunnel.serving.load import drawn_load
from windtunnel.serving.search import FleetSize, front_of, plans_of
from windtunnel.spec import load_model


def asked(**more: object) -> wt.ServeFront:
    return wt.serve_search("llama3.1-8b", "h100-ib", 4, isl=256, osl=64, users=[1, 8, 64], processes=1, **more)  # type: ignore[arg-type]


def test_the_front_is_what_no_other_choice_beats() -> None:
    found = asked()
    front = found.front
    assert all(a.throughput > b.throughput and a.interactivity < b.interactivity for a, b in zip(front, front[1:], strict=False))
    assert front_of(front) == front
    assert found.best is front[0] and found.nearest == ""
    assert found.asked == 3 * len(list(plans_of(load_model("llama3.1-8b"), 4)))
    assert found.simulated + found.unfit + found.bound == found.asked


def test_a_choice_is_what_serve_predict_answers() -> None:
    one = asked().front[0]
    plan = one.plan
    alone = wt.serve_predict(
        "llama3.1-8b", "h100-ib", plan.gpus, tp=plan.tp, pp=plan.pp, isl=256, osl=64, concurrency=one.users, requests=3 * one.users
    )
    assert alone.tpot.mean == pytest.approx(one.served.tpot.mean) and alone.tokens_per_s_gpu == pytest.approx(one.throughput)


def test_processes_change_nothing() -> None:
    whole = wt.serve_search("llama3.1-8b", "h100-ib", 2, isl=128, osl=16, users=[1, 4], processes=1).as_dict()
    assert wt.serve_search("llama3.1-8b", "h100-ib", 2, isl=128, osl=16, users=[1, 4], processes=2).as_dict() == whole


def test_limits_choose_and_bounds_drop_only_what_misses_them() -> None:
    free = asked()
    limit = sorted(one.served.tpot.p90 for one in free.front)[0] * 1.5
    found = asked(tpot=limit)
    assert found.best is not None and found.best.served.tpot.p90 <= limit
    assert found.best.throughput >= max(one.throughput for one in free.front if one.served.tpot.p90 <= limit)
    nothing = asked(ttft=1e-4)
    assert nothing.best is None and "--ttft" in nothing.nearest


def test_plans_divide_what_they_cut() -> None:
    model = load_model("deepseek-v3")
    plans = list(plans_of(model, 16))
    assert ServePlan(tp=1, dp=16, ep=16) in plans and ServePlan(tp=8, ep=8) in plans
    assert all(plan.gpus <= 16 and model.heads % plan.tp == 0 and (plan.tp * plan.dp) % plan.ep == 0 for plan in plans)


def test_what_cannot_be_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlanError, match="--gpus"):
        wt.serve_search("llama3.1-405b", "h100-ib", 2, processes=1)
    with pytest.raises(PlanError, match="--tpot"):
        asked(tpot=1e-6)
    with pytest.raises(SpecError, match="engine"):
        asked(engines=["tgi"])
    assert main(["serve-search", "llama3.1-8b", "--on", "h100-ib", "--users", "a,b"]) == 2
    assert main(["serve-search", "llama3.1-8b"]) == 2
    capsys.readouterr()
    words = ["serve-search", "llama3.1-8b", "--on", "h100-ib", "--gpus", "1", "--users", "1,4", "--isl", "64", "--osl", "8"]
    assert main([*words, "--jobs", "1"]) == 0
    assert "best" in capsys.readouterr().out
    assert main([*words, "--jobs", "1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["users"] == 4


def _sizes(**asked: Any) -> tuple[FleetSize, ...]:
    front = wt.serve_search(
        "llama3.1-8b", "h100-ib", gpus=2, users=[8, 32], isl=512, osl=64, ttft=1.0, tpot=0.03, processes=1, **asked
    )
    return front.fleets


def test_users_take_the_fewest_copies_that_keep_the_limits() -> None:
    """1,500 users: with one copy fewer, a copy's users break a limit. Numbers of users that the search did not try count too, and
    a longer load has the same verdict."""
    sizes = _sizes(all_users=1500)
    assert sizes and [size.gpus for size in sizes] == sorted(size.gpus for size in sizes)
    assert all(size.gpus == size.copies * size.choice.plan.gpus for size in sizes)

    def kept(size: FleetSize, copies: int, waves: int) -> float:
        users = -(-1500 // copies)
        load = drawn_load(512, 64, requests=waves * users, concurrency=users, seed=1)
        limits = serve(size.choice.served.server, load, ttft=1.0, tpot=0.03).limits
        assert limits is not None and limits.at_start == users
        return limits.kept

    first = sizes[0]
    assert first.copies > 1
    assert all(kept(first, first.copies, waves) >= 0.9 > kept(first, first.copies - 1, waves) for waves in (3, 12))


def test_what_all_users_send_at_once_is_judged_where_there_is_nothing_else() -> None:
    """A burst that nothing follows is the load; else a limit is kept by what follows. All arrivals are judged."""
    server = server_of(load_model("qwen3-8b"), "h100-ib", 1, "vllm", ServePlan())

    def kept(**load: Any) -> tuple[float, int]:
        limits = serve(server, drawn_load(2048, 512, **load), ttft=0.5).limits
        assert limits is not None
        return limits.kept, limits.at_start

    burst, alone = kept(concurrency=32, requests=32)
    assert burst < 0.9 and alone == 0
    later, at_start = kept(concurrency=32, requests=320)
    assert later > burst and at_start == 32
    assert kept(rate=1.0, requests=32)[1] == 0


def test_a_rate_takes_the_fewest_copies_that_keep_the_limits() -> None:
    """One copy fewer breaks a limit or falls behind; twice the rate takes more copies, and no more than twice as many and one."""
    few, many = _sizes(rate=40.0), _sizes(rate=80.0)
    first = few[0]
    limits = first.served.limits
    assert limits is not None and limits.kept >= 0.9 and first.served.paced
    assert first.served.requests_per_s == pytest.approx(40.0 / first.copies, rel=0.15)
    if first.copies > 1:
        load = drawn_load(512, 64, requests=4 * 64, rate=40.0 / (first.copies - 1), seed=1)
        over = serve(first.choice.served.server, load, ttft=1.0, tpot=0.03)
        capacity = first.choice.served.requests_per_s * (first.copies - 1)
        assert capacity < 40.0 or not over.paced or over.limits is None or over.limits.kept < 0.9
    assert few[0].gpus <= many[0].gpus <= 2 * few[0].gpus + first.choice.plan.gpus
    assert first.dollars_an_hour is not None and first.dollars_an_hour > 0.0


def test_no_fleet_is_counted_where_none_is_asked() -> None:
    assert _sizes() == ()


LINE = "vllm serve Qwen/Qwen3-8B-FP8 -tp 2 --kv-cache-dtype fp8"
SEARCH = ("--on", "h100-ib", "--gpus", "2", "--isl", "256", "--osl", "32", "--users", "1,4", "--jobs", "1", "--quiet")


def test_a_line_that_starts_a_server_is_searched_as_what_it_says(capfd: pytest.CaptureFixture[str]) -> None:
    found = []
    for words in ([LINE], ["Qwen/Qwen3-8B-FP8", "--kv", "fp8"]):
        assert main(["serve-search", *words, *SEARCH, "--json", "-"]) == 0
        found.append(json.loads(capfd.readouterr().out))
    for one in found:
        one.pop("seconds", None)
    assert found[0]["front"] == found[1]["front"]
    assert {one["formats"]["kv"] for one in found[0]["front"]} == {"fp8"}


@pytest.mark.parametrize(("text", "seconds"), [("40ms", 0.04), ("2s", 2.0), ("0.04", 0.04), ("1500us", 0.0015), ("1min", 60.0)])
@pytest.mark.parametrize("option", ["ttft", "tpot"])
def test_limits_have_units(option: str, text: str, seconds: float, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["serve-predict", "qwen3-8b", "--on", "h100-ib", "--tp", "1", "--isl", "64", "--osl", "8", "--requests", "8"]
    assert main([*words, f"--{option}", text, "--json", "-"]) == 0
    assert json.loads(capfd.readouterr().out)["limits"][option] == pytest.approx(seconds)
    for wrong in ("0s", "-1", "soon"):
        assert main([*words, f"--{option}", wrong]) == 2
        assert "40ms" in capfd.readouterr().err


def test_what_is_searched_next_is_the_same_engine(capfd: pytest.CaptureFixture[str]) -> None:
    said = ["--engine", "trtllm", "--sync", "--graphs", "1,2,4", "--whole-prompts", "--set", "model.max_seq=4000"]
    words = ["serve-predict", "qwen3-8b", "--on", "h100-ib", "--tp", "1", "--isl", "256", "--osl", "32", "--requests", "8"]
    assert main([*words, "--rate", "9", "--burstiness", "0.5", "--ttft", "1ms", *said]) == 0
    typed = shlex.split(capfd.readouterr().err.partition("Next: windtunnel ")[2])
    assert set(said) | {"--rate", "--burstiness"} <= set(typed)
    assert main([*typed, "--gpus", "1", "--users", "4", "--jobs", "1", "--json", "-"]) == 0
    assert {one["engine"] for one in json.loads(capfd.readouterr().out)["front"]} == {"trtllm"}


def test_limits_that_are_missed_say_what_to_type(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["serve-predict", LINE, "--on", "h100-ib", "--isl", "256", "--osl", "32", "--requests", "16"]
    assert main([*words, "--concurrency", "8", "--tpot", "0.1ms"]) == 0
    said = capfd.readouterr().err.partition("Next: windtunnel ")[2]
    assert said.startswith("serve-search ") and "--all-users 8 --tpot 0.0001" in said
    assert main([*words, "--rate", "3", "--ttft", "1ms"]) == 0
    said = capfd.readouterr().err.partition("Next: windtunnel ")[2].strip()
    assert "--rate 3" in said and "--ttft 0.001" in said
    assert main([*shlex.split(said), "--gpus", "1", "--users", "1", "--jobs", "1"]) == 0
    assert main([*words, "--concurrency", "8", "--tpot", "10s"]) == 0
    assert "Next" not in capfd.readouterr().err
