"""The rollout of a step: samples dealt to copies of the engine, each of which runs by its scheduler's rules."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import PlanError
from windtunnel.rl.batch import RLBatch
from windtunnel.rl.job import RLJob
from windtunnel.rl.spec import RolloutSpec
from windtunnel.rl.training import part_of
from windtunnel.serving.drafting import times_of
from windtunnel.serving.engine import ServeEngine
from windtunnel.serving.lane import PassRecord
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.room import CacheRoom, room_of
from windtunnel.serving.server import ServePlan, Server, server_of
from windtunnel.serving.simulate import LaneResult, most_tokens, run_ranks
from windtunnel.serving.speculation import speculation_of
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model

NAMED = 16
"""Tokens of a block whose cached contents samples of a prompt share: vLLM's (SGLang's page is smaller)."""

GAP, REQUEST_GAP = 2e-3, 14e-6
"""Seconds of host work between passes of an engine that does not schedule ahead, and for each request: 5 to 6 ms were measured
with 256 requests of a 7B, of which 2 to 3 are no work on requests (vllm-project/vllm issue 10634)."""

LAYER_HOST = 0.75e-3
"""Seconds in which a host launches a layer without captured graphs: 20 to 22 ms a token for 28 layers, 5.5 with graphs
(vllm-project/vllm-omni issue 7960)."""

MOST = 16384
"""Samples of which every one is simulated; of more, those of the lanes that end last and of a few others."""

SIMULATED = 12
"""Lanes that are simulated of a larger batch: half of them those with the longest sample, half those with most tokens."""

FEWER = (256, 128, 64)
"""Seats that are tried where the memory beside a trainer does not hold those of the engine's default."""

DEGREES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class RolloutServer:
    """A copy of the engine as it stands on the rollout's GPUs, with its prices and its memory."""

    server: Server
    times: StepTimes
    room: CacheRoom


@dataclass(frozen=True)
class RolloutResult:
    """Seconds from the start of a rollout: `ends[s]` of each simulated sample, ascending; `lanes[l]` of each simulated lane.
    `tokens`: generated. `busy`: share of the lanes' time in which they compute; `tail`: seconds at the end in which less than half
    of the samples that fit at once are left. `log`: what passes of the last lane did, if it was asked for."""

    seconds: float
    ends: Floats
    lanes: Floats
    tokens: float
    busy: float
    tail: float
    batch: float
    preempted: int
    recomputed: int
    peak: float
    hits: int
    simulated: int
    log: tuple[PassRecord, ...] = ()


def rollout_server(whole: RLJob, memory: float | None, longest: int) -> RolloutServer:
    """The copy of the engine of `rl.rollout`, with the fewest tensor-parallel ranks that hold a request of `longest` tokens if none
    are stated, and the most seats that leave room where these are not. `memory`: the share of a GPU that it may use, if the job
    states none. PlanError if nothing holds it."""
    asked, cluster = whole.rl.rollout, part_of(whole.job.cluster, whole.rollout_gpus)
    rest = asked.pp * asked.dp
    fitting = [tp for tp in DEGREES if whole.model.heads % tp == 0 and cluster.gpus % (tp * rest) == 0]
    degrees: Sequence[int] = [asked.tp] if asked.tp is not None else fitting or [1]
    drafted = None
    if asked.speculate is not None:
        drafted = speculation_of(asked.speculate, whole.model, load_model, "rl.rollout.speculate")
    refused: PlanError | None = None
    seats = [asked.running] if asked.running is not None else [None, *FEWER]
    for tp, running in itertools.product(degrees, seats):
        server = server_of(
            whole.model, cluster, cluster.gpus, asked.engine, ServePlan(tp=tp, pp=asked.pp, dp=asked.dp, ep=asked.ep),
            weights=asked.weights, kv=asked.kv, step_tokens=asked.step_tokens, running=running,
            memory=asked.memory if asked.memory is not None else memory, speculation=drafted,
        )  # fmt: skip
        block = NAMED if server.engine.block == 1 else server.engine.block
        server = replace(server, engine=_with_host(replace(server.engine, block=block), asked))
        times = times_of(server)
        try:
            room = room_of(server, times)
        except PlanError as error:
            refused = PlanError(error.path, error.got, error.allowed, _OF_SERVERS.sub(_field_of_rollout, error.hint))
            continue
        if most_tokens(times, room.lane_tokens) >= longest:
            return RolloutServer(server, times, room)
        refused = PlanError(
            "rl.rollout.tp", tp, f"a copy whose cache holds the longest sample, {longest:,} tokens; it holds {room.lane_tokens:,}",
            "Raise rl.rollout.tp or rl.rollout.memory, or write rl.rollout.kv = fp8.",
        )  # fmt: skip
    assert refused is not None
    raise refused


_OF_SERVERS = re.compile(r"--(\w+) (\w+)")
"""An option of the verbs of servers."""


def _field_of_rollout(option: re.Match[str]) -> str:
    """What such an option is in a job of reinforcement learning."""
    return f"--set {'cluster' if option[1] == 'gpus' else 'rl.rollout'}.{option[1]}={option[2]}"


def _with_host(engine: ServeEngine, asked: RolloutSpec) -> ServeEngine:
    """The engine with what its host adds to a pass."""
    if not asked.ahead:
        engine = replace(engine, gap=GAP, request_gap=REQUEST_GAP, ahead=False)
    return engine if asked.graphs else replace(engine, layer_host=LAYER_HOST)


def roll_out(at: RolloutServer, whole: RLJob, batch: RLBatch, record: bool = False) -> RolloutResult:
    """All samples of `batch` from the start of a rollout to the last of them. `record`: with what passes did."""
    lanes = min(at.server.lanes, len(batch))
    bounds = np.linspace(0, len(batch), lanes + 1).round().astype(np.int64)
    chosen = range(lanes) if len(batch) <= MOST else _last_lanes(batch, bounds)
    together = at.server.plan.dp if at.server.model.experts else 1  # ranks that begin each pass together
    results, ends = [], []
    for group in sorted({lane // together for lane in chosen}):
        dealt = [np.arange(*bounds[lane : lane + 2]) for lane in range(group * together, min((group + 1) * together, lanes))]
        loads = [lane_load(whole, batch, samples, at.server.engine.block) for samples in dealt]
        results += run_ranks(at.times, loads, at.room.lane_tokens, [1] * len(loads), record)
        ends += [one.last[-len(samples) :] for one, samples in zip(results[-len(loads) :], dealt, strict=True)]
    return _summary(at, batch, results, ends)


def lane_load(whole: RLJob, batch: RLBatch, samples: Int64s, block: int, sent: Floats | None = None) -> ServeLoad:
    """What a lane gets: all of `samples` at once, or when they are `sent`; a request for each turn, the first turns first. Samples
    of a prompt share its blocks; the turns of a sample share all that came before."""
    rl, count = whole.rl, len(samples)
    each = batch.response[samples] // rl.turns
    outputs = np.concatenate([*[each] * (rl.turns - 1), batch.response[samples] - (rl.turns - 1) * each])
    before = [batch.prompt[samples] + turn * (each + rl.tool_tokens) for turn in range(rl.turns)]
    arrival = np.zeros(count) if sent is None else sent
    after = None
    if rl.turns > 1:
        arrival = np.concatenate([arrival, *[np.full(count, arrival.max())] * (rl.turns - 1)])
        after = np.concatenate([np.full(count, -1), np.arange(count * (rl.turns - 1))])
    blocks = _names(batch, samples, block, rl.turns)
    pause = rl.tool_seconds if rl.turns > 1 else 0.0
    return ServeLoad(np.concatenate(before), outputs, arrival, 0, blocks, block, (), rl.turns > 1, after, pause)


def _names(batch: RLBatch, samples: Int64s, block: int, turns: int) -> tuple[tuple[int, ...], ...]:
    """Names of the blocks of each request: those of the prompt's full blocks by prompt, those behind them by sample."""
    shared: dict[int, tuple[int, ...]] = {}
    found: list[tuple[int, ...]] = []
    for sample in samples.tolist():
        group, full = int(batch.group[sample]), int(batch.prompt[sample]) // block
        names = shared.setdefault(group, tuple((group << 40) + n for n in range(full)))
        if turns > 1:
            rest = int(batch.lengths[sample]) // block + 1 - full
            names += tuple(-((sample << 40) + n + 1) for n in range(rest))
        found.append(names)
    return tuple(found * turns)


def _last_lanes(batch: RLBatch, bounds: Int64s) -> list[int]:
    """The lanes that are simulated of many: those with the longest sample and those with most tokens."""
    longest = np.maximum.reduceat(batch.response, bounds[:-1])
    most = np.add.reduceat(batch.response, bounds[:-1])
    half = SIMULATED // 2
    return sorted({*np.argsort(-longest)[:half].tolist(), *np.argsort(-most)[:half].tolist()})


def _summary(at: RolloutServer, batch: RLBatch, results: list[LaneResult], ends: list[Floats]) -> RolloutResult:
    lanes = np.array([float(result.last.max()) for result in results])
    seconds = float(lanes.max())
    together = np.sort(np.concatenate(ends))
    width = max(1.0, max(result.mean_batch for result in results) * len(results) / 2.0)
    left = len(together) - np.searchsorted(together, together, side="right")
    tail = seconds - float(together[np.argmax(left < width)])
    busy = sum(result.busy for result in results) / (seconds * len(results))
    count = max(len(results), 1)
    return RolloutResult(
        seconds, together, lanes, float(batch.response.sum()), busy, tail, sum(r.mean_batch for r in results) / count,
        sum(r.preempted for r in results), sum(r.recomputed for r in results), max(r.peak for r in results),
        sum(r.hits for r in results), len(together), results[int(lanes.argmax())].log,
    )  # fmt: skip
