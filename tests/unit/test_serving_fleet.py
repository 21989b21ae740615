"""Many replicas behind a router: against each replica simulated pass by pass, against queueing theory where it is exact, and what
failures, an autoscaler, sessions and caches must do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.base.errors import FileError, PlanError, SpecError, UnknownName
from windtunnel.cli import main
from windtunnel.serving import ServeLoad, ServePlan, Server, serve, serve_apart, server_of
from windtunnel.serving.drafting import times_of
from windtunnel.serving.load import drawn_load
from windtunnel.serving.predict import with_gpus
from windtunnel.serving.replicas.curve import DAY, read_curve
from windtunnel.serving.replicas.pass_table import PassTable
from windtunnel.serving.replicas.prefixes import PrefixCache, PrefixIndex
from windtunnel.serving.replicas.replica import ReplicaKind
from windtunnel.serving.replicas.routers import CACHE_AWARE, KV_AWARE, LEAST_REQUESTS
from windtunnel.serving.replicas.run import Autoscaler, FleetPlan, ReplicasRun, columns_of, run_fleet
from windtunnel.serving.replicas.sizing import FleetQuestion, answer_fleet
from windtunnel.serving.room import room_of
from windtunnel.serving.routing import ROUTERS, RouterView
from windtunnel.serving.sessions import SharedPrefix, drawn_sessions
from windtunnel.serving.simulate import FRONT, TOKENISE
from windtunnel.spec import load_model


def copy_of(model: str = "llama3.1-8b", machine: str = "h100-ib", engine: str = "vllm", **more: Any) -> Server:
    plan = ServePlan(**{name: more.pop(name) for name in ("tp", "pp", "dp", "ep") if name in more})
    return server_of(load_model(model), machine, plan.gpus, engine, plan, **more)


def fleet_of(
    server: Server, load: ServeLoad, replicas: int, front: Server | None = None, fronts: int | None = None, **more: Any
) -> Any:
    more = {"router": "round-robin", **more}
    return answer_fleet(FleetQuestion(server, front, load, lambda part: load, replicas=replicas, fronts=fronts, **more))


LOADS: dict[str, tuple[dict[str, Any], ServeLoad]] = {
    "vllm": ({}, drawn_load("1024~0.5", "256~0.5", requests=400, rate=20)),
    "sglang": ({"engine": "sglang"}, drawn_load("1024~0.5", "256~0.5", requests=400, rate=20)),
    "trtllm": ({"engine": "trtllm"}, drawn_load("1024~0.5", "256~0.5", requests=400, rate=20)),
    "users": ({}, drawn_load(512, "100~0.5", requests=400, concurrency=64)),
    "stages": ({"tp": 2, "pp": 2}, drawn_load("1024~0.5", "100~0.5", requests=300, rate=10)),
    "preempted": ({"memory": 0.32}, drawn_load("1500~0.5", "800~0.5", requests=200, rate=20)),
    "sessions": ({}, drawn_sessions("800~0.5", "100~0.5", 4, 2, sessions=100, rate=8)),
    "full of sessions": ({"memory": 0.45}, drawn_sessions("1500~0.5", "100~0.5", 5, 9, sessions=100, rate=8)),
}


@pytest.mark.parametrize("name", LOADS)
def test_a_fleet_is_as_each_replica_pass_by_pass(name: str) -> None:
    said, load = LOADS[name]
    server = copy_of(**said)
    copies = 2 if load.is_open and load.after is None else 1  # users and sessions are dealt to lanes, a router deals requests
    exact = serve(with_gpus(server, copies * server.plan.gpus), load)
    found = fleet_of(server, load, copies)
    far = 0.1 if "full" in name else 0.05 if name == "users" else 0.03
    for kind in ("ttft", "tpot", "e2e"):
        one, other = getattr(exact, kind), getattr(found, kind)
        assert other.mean == pytest.approx(one.mean, rel=far)
        # who is preempted moves single requests: of ten drawn loads the medians were up to 8 % off, the means 0.7
        assert (other.p50, other.p90) == pytest.approx((one.p50, one.p90), rel=0.1 if name == "preempted" else far)
    assert found.whole.busy == pytest.approx(exact.busy, rel=0.03)
    assert found.prefix_hits == pytest.approx(exact.prefix_hits, abs=0.02)
    assert abs(found.preempted - exact.preempted) <= 3 + 0.3 * exact.preempted
    assert found.dollars_per_million == pytest.approx(exact.dollars, rel=0.03)


def test_ranks_that_share_experts_are_near_those_that_meet_each_pass() -> None:
    server = copy_of("deepseek-v3", "h200-ib", "sglang", tp=1, dp=8, ep=8, weights="fp8")
    load = drawn_load("1000~0.5", "200~0.5", requests=150, rate=4)
    exact, found = serve(server, load), fleet_of(server, load, 1)
    assert (found.ttft.mean, found.tpot.mean) == pytest.approx((exact.ttft.mean, exact.tpot.mean), rel=0.15)


def test_prompts_apart_are_as_both_sides_pass_by_pass() -> None:
    front, back = (copy_of(tp=tp) for tp in (1, 2))
    load = drawn_load("4000~0.5", "200~0.5", rate=8, requests=300)
    exact = serve_apart(with_gpus(front, 3), with_gpus(back, 4), load)
    found = fleet_of(back, load, 2, front, 3)
    for kind in ("ttft", "tpot", "e2e"):
        assert getattr(found, kind).mean == pytest.approx(getattr(exact, kind).mean, rel=0.03)
    assert found.prompts is not None and exact.prefill is not None
    assert found.prompts.busy == pytest.approx(exact.prefill.busy, rel=0.03)


class PlainPasses(PassTable):
    """Passes of the same seconds, whatever they compute."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.ranks = seconds, 1

    def decode(self, requests: int, context: float) -> float:
        return self.seconds

    def mixed_seconds(self, prompt: int, chunks: int, pairs: float, requests: int, context: float, sampled: int) -> float:
        return self.seconds


def queue_of(output: Any, rate: float, replicas: int, router: str, seconds: float = 0.01) -> np.ndarray[Any, Any]:
    """Seconds for which each request of a Poisson stream is there, on replicas that serve one at a time, a token in 10 ms."""
    server = copy_of()
    one = replace(server, engine=replace(server.engine, running=1))
    load = ServeLoad(np.full(len(output), 10), output, np.cumsum(np.random.default_rng(3).exponential(1.0 / rate, len(output))))
    result = run_fleet(FleetPlan(ReplicaKind(one, PlainPasses(seconds), 10**9), replicas, router), load)
    return columns_of(result.book)[2] - FRONT - TOKENISE * 10


def test_random_replicas_are_queues_with_exponential_service() -> None:
    """M/M/1: a Poisson stream dealt at random is one on each replica; the mean stay is s / (1 - rho)."""
    output = np.maximum(1, np.random.default_rng(1).exponential(100.0, 60_000).round()).astype(np.int64)
    service = 0.01 * float(output.mean())
    stay = queue_of(output, 4 * 0.7 / service, 4, "random")
    assert float(stay.mean()) == pytest.approx(service / (1.0 - 0.7), rel=0.05)
    assert float((stay > 2.0 * service).mean()) == pytest.approx(math.exp(-0.3 * 2.0), rel=0.06)  # it is exponential


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_constant_service_waits_as_pollaczek_and_khinchine_say(load: float) -> None:
    """M/G/1 with constant service: the mean wait is rho s / (2 (1 - rho)); of two lengths it grows with the second moment."""
    count, service = 60_000, 1.0
    stay = queue_of(np.full(count, 100), load / service, 1, "least-requests")
    assert float(stay.mean()) == pytest.approx(service + load * service / (2.0 * (1.0 - load)), rel=0.05)
    mixed = np.where(np.random.default_rng(2).random(count) < 0.5, 20, 180)
    stay = queue_of(mixed, load / service, 1, "least-requests")
    second = 0.5 * (0.2**2 + 1.8**2)
    assert float(stay.mean()) == pytest.approx(service + load * second / (2.0 * (1.0 - load)), rel=0.06)


def test_the_fewest_requests_wait_less_than_turns_and_turns_less_than_chance() -> None:
    output = np.maximum(1, np.random.default_rng(1).exponential(100.0, 20_000).round()).astype(np.int64)
    stays = [
        float(queue_of(output, 3.0, 4, router).mean()) for router in ("least-requests", "least-tokens", "round-robin", "random")
    ]
    assert stays == sorted(stays)


def test_prefix_aware_routers_find_what_a_session_left() -> None:
    load = drawn_sessions("600~0.5", "60~0.5", 6, 3, sessions=80, rate=12, shared=SharedPrefix(1000))
    server = copy_of()
    hits = {name: fleet_of(server, load, 4, router=name) for name in ("round-robin", "cache-aware", "kv-aware")}
    shares = {name: found.prefix_hits for name, found in hits.items()}
    assert shares["round-robin"] + 0.1 < min(shares["cache-aware"], shares["kv-aware"])
    assert max(hits[name].ttft.mean for name in ("cache-aware", "kv-aware")) < hits["round-robin"].ttft.mean


def test_a_prefix_record_says_who_has_how_much() -> None:
    index = PrefixIndex(3, 16)
    caches = [PrefixCache(number, index) for number in range(3)]
    caches[0].keep([1, 2, 3], 160)
    caches[2].keep([1, 2], 160)
    assert index.lengths([1, 2, 3, 4]) == {0: 3, 2: 2} and index.lengths([9]) == {} and index.sizes == [3, 0, 2]
    assert caches[0].match([1, 2, 9]) == 32
    caches[0].shrink(32)  # block 3 was used longest ago
    assert index.lengths([1, 2, 3]) == {0: 2, 2: 2}
    view = RouterView([5.0, 0.0, 1.0], [500.0, 0.0, 90.0], [0, 1, 2], index)
    assert CACHE_AWARE.start(1).choose(view, 40, [1, 2, 3]) == 2  # equal prefixes: the fewest requests
    assert CACHE_AWARE.start(1).choose(view, 400, [1, 2, 3]) == 1  # too little is shared: the smallest record
    assert KV_AWARE.start(1).choose(view, 48, [1, 2]) == 1  # 3 blocks to compute and 3 to hold, against 1 and 8.6
    crowded = RouterView([200.0, 0.0, 1.0], [0.0] * 3, [0, 1, 2], index)
    assert CACHE_AWARE.start(1).choose(crowded, 40, [1, 2, 3]) == LEAST_REQUESTS.start(1).choose(crowded, 40, [])


def test_failures_send_requests_again_and_cost_time() -> None:
    server, load = copy_of(), drawn_load(512, "200~0.5", requests=2000, rate=20)
    calm = fleet_of(server, load, 4, router="least-requests")
    rough = fleet_of(server, load, 4, router="least-requests", mtbf=60.0, cold_start=20.0)
    assert calm.failures == calm.resent == 0
    assert 2 <= rough.failures <= 16 and rough.resent >= rough.failures
    assert rough.e2e.mean > calm.e2e.mean and len(rough.load) == 2000


def test_an_autoscaler_follows_a_day() -> None:
    server = copy_of()
    curve = read_curve("swing=0.9", 8.0)
    arrival = curve.arrivals(np.random.default_rng(1)) / 24.0  # an hour that has a day's swing, 24 times as fast
    count = len(arrival) // 24
    load = drawn_load(512, "200~0.5", requests=count, rate=1.0)
    load = replace(load, arrival=np.sort(np.random.default_rng(2).choice(arrival, count, replace=False)))
    scaled = fleet_of(server, load, 8, scaling=(1, 8), target=20.0, cold_start=30.0)
    still = fleet_of(server, load, 8)
    counts = scaled.series.replicas
    assert counts.min() < 0.5 * counts.max() and scaled.gpu_hours < 0.8 * still.gpu_hours
    busiest = int(scaled.series.rate.argmax())
    assert counts[busiest - 10 : busiest + 20].max() > counts[:10].mean()
    assert scaled.ttft.p50 < 2.0 * still.ttft.p50


def test_a_cold_start_makes_the_first_ones_wait() -> None:
    server, load = copy_of(), drawn_load(512, "200~0.5", requests=2000, rate=40)
    kind = ReplicaKind(server, PassTable(times_of(server), 4096), room_of(server, times_of(server)).lane_tokens)
    waits = []
    for cold in (1.0, 40.0):
        plan = FleetPlan(kind, 1, cold_start=cold, scaler=Autoscaler(1, 8, 10.0, 5.0))
        waits.append(float(columns_of(run_fleet(plan, load).book)[2].mean()))
    assert waits[0] < waits[1]


def test_the_size_is_the_fewest_that_keep_the_limits() -> None:
    asked: dict[str, Any] = {"tp": 1, "isl": 1024, "osl": 200, "rate": 60.0, "requests": 3000, "ttft": 0.3, "tpot": 0.012}
    found = wt.serve_fleet("llama3.1-8b", "h100-ib", **asked)
    assert found.kept >= 0.9 and found.tries[-1].replicas >= 1
    fewer = wt.serve_fleet("llama3.1-8b", "h100-ib", found.whole.replicas - 1, **asked)
    assert fewer.kept < 0.9
    with pytest.raises(PlanError, match="replicas keeps"):
        wt.serve_fleet("llama3.1-8b", "h100-ib", tp=1, users=4, requests=40, tpot=1e-5)


def test_a_fleet_for_sessions_is_found_although_turns_come_after_the_last_user() -> None:
    asked: dict[str, Any] = {"tp": 1, "users": 30, "requests": 120, "turns": 4, "think": 20.0, "isl": 300, "osl": 50}
    found = wt.serve_fleet("llama3.1-8b", "h100-ib", ttft=1.0, tpot=0.05, **asked)
    assert found.whole.replicas == 1


def test_two_sides_are_sized_apart_and_may_be_of_two_machines() -> None:
    asked: dict[str, Any] = {"tp": 1, "isl": 3000, "osl": 100, "rate": 20.0, "requests": 600, "ttft": 0.5, "tpot": 0.015}
    found = wt.serve_fleet("llama3.1-8b", "h100-ib", prefill="tp=1", **asked)
    assert found.prompts is not None and found.kept >= 0.9 and found.prompts.replicas >= 2
    mixed = wt.serve_fleet("llama3.1-8b", "h200-ib", prefill=f"tp=1,replicas={found.prompts.replicas},on=h100-ib", **asked)
    assert mixed.prompts is not None and mixed.prompts.server.job.cluster.gpu.name != mixed.whole.server.job.cluster.gpu.name
    assert mixed.whole.replicas <= found.whole.replicas


def test_nothing_is_lost_when_all_replicas_are_down() -> None:
    server, load = copy_of(), drawn_load(512, 50, requests=300, rate=20)
    kind = ReplicaKind(server, PassTable(times_of(server), 4096), 100_000)
    run = ReplicasRun(FleetPlan(kind, 1, mtbf=5.0, cold_start=3.0), load)
    result = run.run()
    assert result.failures >= 1 and min(result.book.last) > 0.0
    assert result.book.emitted == load.output.tolist()


def test_curves() -> None:
    day = read_curve("swing=0.5", 10.0)
    assert (day.mean, day.peak, day.span) == pytest.approx((10.0, 15.0, DAY))
    arrivals = day.arrivals(np.random.default_rng(1))
    assert len(arrivals) == pytest.approx(864_000, rel=0.01) and bool((np.diff(arrivals) >= 0.0).all())
    noon = float(((arrivals > 0.45 * DAY) & (arrivals < 0.55 * DAY)).sum()) / (0.1 * DAY)
    assert noon == pytest.approx(15.0, rel=0.03)
    assert day.over_seconds(2.5 * DAY).span == pytest.approx(2.5 * DAY)


def test_a_curve_of_a_file(tmp_path: Any) -> None:
    path = tmp_path / "rate.csv"
    path.write_text("hour,requests\n0,1\n12,5\n24,1\n")
    curve = read_curve(str(path), None)
    assert (curve.mean, curve.span) == pytest.approx((3.0, DAY)) and read_curve(str(path), 30.0).peak == pytest.approx(50.0)
    for words in ("hour,rate\n3,1\n2,1\n", "a\n", "0,0\n1,0\n"):
        path.write_text(words)
        with pytest.raises(FileError):
            read_curve(str(path), None)
    with pytest.raises(SpecError, match="mean rate"):
        read_curve("swing=0.5", None)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({}, "one of --users"),
        ({"rate": 1.0, "users": 2}, "one of --users"),
        ({"rate": 1.0, "autoscale": "9-2"}, "2-40"),
        ({"rate": 1.0, "mtbf": -1.0}, "hours"),
        ({"rate": 1.0, "cold_start": -1.0}, "seconds"),
        ({"rate": 1.0, "prefill": "replicas=2"}, "tp=2"),
        ({"rate": 1e4, "hours": 24.0}, "at most 2,000,000"),
        ({"users": 2, "shared_prefix": "x"}, "2000:0.5"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, Any], error: str) -> None:
    with pytest.raises(wt.WindtunnelError, match=error):
        wt.serve_fleet("llama3.1-8b", "h100-ib", tp=1, **more)


def test_a_router_that_nobody_has() -> None:
    with pytest.raises(UnknownName, match="router"):
        wt.serve_fleet("llama3.1-8b", "h100-ib", tp=1, users=2, router="best")
    assert len(ROUTERS) >= 6


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            "serve-fleet",
            "llama3.1-8b",
            "--on",
            "h100-ib",
            "--tp",
            "1",
            "--users",
            "4",
            "--requests",
            "16",
            "--osl",
            "32",
            "--tpot",
            "0.02",
        ]
    )
    said = capsys.readouterr().out
    assert "1 replica on 1 GPU" in said and "least-requests" in said


def test_a_user_pauses_between_requests() -> None:
    """Two requests of ten tokens, one after the other: with a pause of 1 s the second one ends 1 s later."""
    server, ends = copy_of(), []
    for pause in (0.0, 1.0):
        load = ServeLoad(np.full(2, 10), np.full(2, 10), np.zeros(0), 1, pause=pause)
        ran = run_fleet(FleetPlan(ReplicaKind(server, PlainPasses(0.01), 10**9), 1, "random"), load)
        ends.append(max(ran.book.last))
    assert ends[1] - ends[0] == pytest.approx(1.0)
