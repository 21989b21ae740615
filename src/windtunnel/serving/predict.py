"""A server and a load to an answer."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dtypes import FORMATS
from windtunnel.base.errors import SpecError
from windtunnel.predict.answer.money import bill
from windtunnel.serving.answer import LatencyLimits, LatencySpread, PrefillSide, Served, ServedDetail
from windtunnel.serving.disaggregated import run_apart
from windtunnel.serving.drafting import times_of
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.published import FirstToken
from windtunnel.serving.records import RequestRecords
from windtunnel.serving.room import CacheRoom, room_of
from windtunnel.serving.server import Server
from windtunnel.serving.simulate import FRONT, LaneResult, run_ranks, tokenise_of
from windtunnel.serving.step_times import StepTimes
from windtunnel.serving.tiers import TierHits

BACKLOG = 0.05
"""Share of a load's span that a server which keeps up may need for what has piled up at its end."""


def serve(
    server: Server,
    load: ServeLoad,
    *,
    ttft: float | None = None,
    tpot: float | None = None,
    times: StepTimes | None = None,
    record: bool = False,
    beside: int = 0,
) -> Served:
    """How `server` answers `load`. `ttft`, `tpot`: limits in seconds, of which the answer says how many requests keep them.

    Requests are dealt to lanes (replicas, DP-attention ranks, pipeline stages) in turn; lanes with the same requests are simulated
    once. DP-attention ranks begin each pass together. Requests beyond the model's context are cut, and said in the notes. `times`:
    those of the same server, from a call before; `record`: the answer has what passes did; `beside`: GPUs that it needs further,
    those of experts. SpecError for limits that are none, PlanError for a model or a request that does not fit.
    """
    check_latency_limits(ttft, tpot)
    load = within_context(load, server.model.max_seq)
    times = times or times_of(server)
    room = room_of(server, times)
    results = _run_all(times, load, room.lane_tokens, record)
    return _answer(server, load, times, room, results, (ttft, tpot), beside)


def _run_all(times: StepTimes, load: ServeLoad, tokens: int, record: bool) -> list[tuple[ServeLoad, LaneResult]]:
    """What happened on each lane; ranks of DP attention that share experts run together."""
    server = times.server
    together = server.plan.dp if server.model.experts else 1
    parts = [load.part(lane, server.lanes) for lane in range(server.lanes)]
    results: list[tuple[ServeLoad, LaneResult]] = []
    seen: dict[object, list[LaneResult]] = {}
    for first in range(0, len(parts), together):
        group = parts[first : first + together]
        keys = [_key_of(part) for part in group]
        kinds = list(dict.fromkeys(keys))
        if not any(len(part) for part in group):
            continue
        if tuple(keys) not in seen:
            loads = [group[keys.index(kind)] for kind in kinds]
            ran = run_ranks(times, loads, tokens, [keys.count(kind) for kind in kinds], record)
            seen[tuple(keys)] = [ran[kinds.index(key)] for key in keys]
        results += zip(group, seen[tuple(keys)], strict=True)
    return results


def _key_of(part: ServeLoad) -> tuple[object, ...]:
    """Equal for loads that a lane serves alike."""
    chains = tuple(b"" if column is None else column.tobytes() for column in (part.after, part.pauses))
    return part.prompt.tobytes(), part.output.tobytes(), part.arrival.tobytes(), part.concurrency, part.blocks, *chains


def serve_apart(
    prefill: Server,
    decode: Server,
    load: ServeLoad,
    *,
    ttft: float | None = None,
    tpot: float | None = None,
    record: bool = False,
) -> Served:
    """How copies of `prefill` that compute prompts and copies of `decode` that emit tokens answer `load` together; see
    `disaggregated.py`. Errors as of `serve`."""
    sides = times_of(prefill), times_of(decode)
    rooms = room_of(prefill, sides[0]), room_of(decode, sides[1])
    return serve_sides(sides, rooms, load, ttft=ttft, tpot=tpot, record=record)


def serve_sides(
    sides: tuple[StepTimes, StepTimes],
    rooms: tuple[CacheRoom, CacheRoom],
    load: ServeLoad,
    *,
    ttft: float | None = None,
    tpot: float | None = None,
    record: bool = False,
) -> Served:
    """`serve_apart` of two servers whose passes and memory are known."""
    check_latency_limits(ttft, tpot)
    prefill, decode = sides[0].server, sides[1].server
    load = within_context(load, decode.model.max_seq)
    ran = run_apart(*sides, load, (rooms[0].lane_tokens, rooms[1].lane_tokens), record)
    whole = with_gpus(decode, prefill.job.cluster.gpus + decode.job.cluster.gpus)
    served = _answer(whole, load, sides[1], rooms[1], [(load, ran.result)], (ttft, tpot))
    side = PrefillSide(
        prefill.plan, prefill.replicas, prefill.job.cluster.gpus, ran.prefill_busy, decode.replicas, ran.decode_busy, ran.transfer
    )
    return replace(served, prefill=side, first=None)


def on_copies(times: StepTimes, copies: int) -> StepTimes:
    """Passes of a server of one copy as those of `copies`: the same ones."""
    wide = copy(times)
    wide.server = with_gpus(times.server, copies * times.server.plan.gpus)
    return wide


def with_gpus(server: Server, gpus: int) -> Server:
    """`server` on `gpus` of its cluster."""
    cluster = server.job.cluster.model_copy(update={"gpus": gpus})
    return replace(server, job=server.job.model_copy(update={"cluster": cluster}))


def check_latency_limits(ttft: float | None, tpot: float | None) -> None:
    """SpecError for limits that are none."""
    for path, value in (("ttft", ttft), ("tpot", tpot)):
        if value is not None and not value > 0.0:
            raise SpecError(path, value, "seconds, such as 0.5")


def within_context(load: ServeLoad, context: int) -> ServeLoad:
    """`load` with prompts and outputs cut so that both fit into `context` tokens. SpecError if there is no request, or none whose
    prompt leaves room for an output."""
    if not len(load):
        raise SpecError("load", "no request", "at least one request")
    if int(load.prompt.min()) >= context:
        allowed = f"prompts of fewer tokens than the model's context of {context:,}"
        raise SpecError("load", f"prompts of {int(load.prompt.min()):,} tokens or more", allowed, f"Write --isl {context // 2}.")
    if int((load.prompt + load.output).max()) <= context:
        return load
    prompt = np.minimum(load.prompt, max(1, context - 1))
    output = np.minimum(load.output, np.maximum(1, context - prompt))
    cut = int(((prompt != load.prompt) | (output != load.output)).sum())
    note = f"{cut} of {len(load)} requests were cut to the model's context of {context} tokens"
    return replace(load, prompt=prompt, output=output, notes=(*load.notes, note))


def floor_of(server: Server, times: StepTimes, batch: float, length: float) -> float:
    """Seconds of a token at least: bytes of the weights and of the cache that a decoding pass reads, over memory bandwidth and the
    tokens that the pass yields."""
    model = server.model
    table = server.job.padded_vocab // server.plan.tp * model.per_layer_width * server.job.runtime.compute_width
    weights = times.weights() - table  # of per-layer embeddings, of which a token reads a row
    if model.experts:  # experts that no token chose are not read
        blocks = [times.graph.layer(kind, max(1, round(batch))) for kind, _, _ in times.kinds]
        counts = [count for _, count, _ in times.kinds]
        products = [
            sum(FORMATS[form].width * row.batch * row.n * row.k for row, form in zip(block.rows, block.forms, strict=True) if row.k)
            + sum(call.read for call in block.experts)
            for block in blocks
        ]
        weights = min(weights, sum(count * size for count, size in zip(counts, products, strict=True)))
    cached = sum(
        count * mixing.read_tokens(batch * length, round(batch)) * mixing.cache * FORMATS[server.kv].width
        for _, count, mixing in times.kinds
    )
    accepted = 1.0 if server.speculation is None else server.speculation.accepted
    return float(weights + cached) / server.job.cluster.gpu.memory_bandwidth / accepted


def _answer(
    server: Server,
    load: ServeLoad,
    times: StepTimes,
    room: CacheRoom,
    results: list[tuple[ServeLoad, LaneResult]],
    limits: tuple[float | None, float | None],
    beside: int = 0,
) -> Served:
    sent, first, last = (np.concatenate([getattr(r, name) for _, r in results]) for name in ("sent", "first", "last"))
    prompt, output = (np.concatenate([getattr(part, name) for part, _ in results]) for name in ("prompt", "output"))
    client = server.engine.client
    ttft, e2e = first - sent + client, last - sent + client
    many = output > 1
    tpot = (last - first)[many] / (output[many] - 1.0)
    seconds = float(last.max() - sent.min())
    if client and not load.is_open:  # each user's round is longer by it
        seconds *= float(e2e.mean()) / (float(e2e.mean()) - client)
    tokens, gpus = float(output.sum()), server.job.cluster.gpus + beside
    busy = sum(r.busy for _, r in results)
    batch = sum(r.mean_batch for _, r in results) / len(results) * server.plan.dp
    share = tokens / max(seconds, 1e-12)
    dollars, joules = _price(with_gpus(server, gpus) if beside else server, seconds, tokens, results)
    mean_length = float((prompt + output / 2.0).mean())
    each = sum(r.mean_batch for _, r in results) / len(results)
    return Served(
        server,
        len(sent),
        seconds,
        LatencySpread.of(ttft),
        LatencySpread.of(tpot),
        LatencySpread.of(e2e),
        len(sent) / seconds,
        share,
        (tokens + float(prompt.sum())) / seconds,
        share / gpus,
        batch,
        room,
        room.requests(float((prompt + output).mean())) * server.plan.dp * server.plan.pp,
        max(r.peak for _, r in results),
        sum(r.hits for _, r in results) / max(1.0, float(prompt.sum())),
        sum(r.preempted for _, r in results),
        sum(r.recomputed for _, r in results),
        busy / max(seconds * len(results), 1e-12),
        floor_of(server, times, each, mean_length),
        dollars,
        joules,
        _limits(ttft, tpot, many, load.mask_judged(sent), seconds, *limits),
        (*_formats_note(server), *load.notes),
        accepted=mean_yield(server, results),
        detail=_detail(times, results, (ttft, tpot, e2e), each, mean_length) if any(r.log for _, r in results) else None,
        records=_records(results, sent, (ttft, e2e), (last - first) / np.maximum(output - 1.0, 1.0)),
        tiers=_tier_hits(server, results),
        paced=_keeps_up(load, seconds, float(np.quantile(output, 0.9)), tpot),
        users=0 if load.is_open else -(-load.concurrency // server.replicas),
        passes=times.source,
        first=first_token(times, load, float(ttft.mean())),
    )


def first_token(times: StepTimes, load: ServeLoad, seconds: float) -> FirstToken:
    """What a mean first token of `seconds` is made of."""
    prompt = float(load.prompt.mean())
    host = min(seconds, FRONT + tokenise_of(load) * prompt + times.server.engine.client)
    pairs = prompt * (prompt + 1.0) / 2.0
    own = min(seconds - host, times.seconds(Passing(round(prompt), 1, pairs, 0, 0.0), 1))
    cold = max(load.concurrency, 1) / len(load) if load.cold else 0.0
    return FirstToken(host, own, seconds - host - own, cold, times.server.engine.name)


def _records(
    results: list[tuple[ServeLoad, LaneResult]], sent: Floats, waits: tuple[Floats, Floats], tpot: Floats
) -> RequestRecords:
    """What each request did; `waits`: seconds to its first and its last token."""
    prompt, output = (np.concatenate([getattr(part, name) for part, _ in results]) for name in ("prompt", "output"))
    return RequestRecords(
        sent - float(sent.min()), waits[0], np.where(output > 1, tpot, np.nan), waits[1], prompt, output,
        np.concatenate([result.reused for _, result in results]), np.concatenate([result.losses for _, result in results]),
        {"lane": np.repeat(np.arange(len(results)), [len(result.sent) for _, result in results])},
    )  # fmt: skip


def _tier_hits(server: Server, results: list[tuple[ServeLoad, LaneResult]]) -> tuple[TierHits, ...]:
    """Shares of prompt tokens that came from each tier."""
    tokens = max(1.0, float(sum(part.prompt.sum() for part, _ in results)))
    given = [result.tier_hits for _, result in results if result.tier_hits]
    return tuple(TierHits(tier.name, sum(hits[place] for hits in given) / tokens) for place, tier in enumerate(server.tiers))


def _formats_note(server: Server) -> tuple[str, ...]:
    """Which formats the answer took from the checkpoint, and from where."""
    return (f"weights {server.formats}, cache {server.kv}: {server.checkpoint}",) if server.checkpoint else ()


def _keeps_up(load: ServeLoad, seconds: float, long: float, tpot: Floats) -> bool:
    """Whether requests come at stated moments, and what is left after the last of them is no more than a `long` output takes."""
    if not load.is_open or len(load) < 2:
        return False
    span = float(load.arrival.max() - load.arrival.min())
    alone = long * float(np.median(tpot)) if len(tpot) else 0.0
    return span > 0.0 and seconds - span <= BACKLOG * span + 2.0 * alone


def _detail(
    times: StepTimes, results: list[tuple[ServeLoad, LaneResult]], spent: tuple[Floats, Floats, Floats], batch: float, length: float
) -> ServedDetail:
    """What pages draw of an answer."""
    server = times.server
    decodes = max(1, round(batch))
    one = Passing(0, 0, 0.0, decodes, decodes * length, decodes * server.drafts)
    prompt = int(np.mean([part.prompt.mean() for part, _ in results if len(part)]))
    most = server.engine.prefill_chunk or server.engine.step_tokens
    chunks = max(1, most // max(prompt, 1))
    prompt = min(prompt, most)
    pairs = chunks * prompt * (prompt + 1) / 2.0
    log = max((r.log for _, r in results), key=len)
    return ServedDetail(
        *spent, log, len(results), decodes, times.pass_parts(one, decodes + one.verified),
        prompt * chunks, times.pass_parts(Passing(prompt * chunks, chunks, pairs, 0, 0.0), chunks),
    )  # fmt: skip


def mean_yield(server: Server, results: list[tuple[ServeLoad, LaneResult]]) -> float | None:
    """Tokens that came out of a pass of a decoding request, in the mean; None without drafts."""
    verified = sum(r.verified for _, r in results)
    if server.speculation is None or not verified:
        return None
    return 1.0 + server.drafts - sum(r.rejected for _, r in results) / verified


def _limits(
    ttft: Floats, tpot: Floats, many: Bools, judged: Bools, seconds: float, first: float | None, each: float | None
) -> LatencyLimits | None:
    """What share of the `judged` requests keeps the limits, and what the nearest limits are that nine of ten keep."""
    if first is None and each is None:
        return None
    good = np.ones(len(ttft), bool) if first is None else ttft <= first
    if each is not None:
        slow = np.zeros(len(ttft))
        slow[many] = tpot
        good = good & (slow <= each)
    first_p90 = float(np.quantile(ttft[judged], 0.9))
    each_p90 = float(np.quantile(tpot[judged[many]], 0.9)) if judged[many].any() else None
    near = [f"--ttft {first_p90:.3g}"] if first is not None and first_p90 > first else []
    near += [f"--tpot {each_p90:.3g}"] if each is not None and each_p90 is not None and each_p90 > each else []
    words = f"nine of ten requests keep {' '.join(near)}" if near else ""
    kept, counted = float(good[judged].mean()), int(judged.sum())
    rate = kept * len(ttft) / seconds
    return LatencyLimits(first, each, kept, rate, words, first_p90, each_p90, len(ttft) - counted)


def _price(
    server: Server, seconds: float, tokens: float, results: list[tuple[ServeLoad, LaneResult]]
) -> tuple[float | None, float | None]:
    """Dollars and joules of a million output tokens. Prompts are matrix products, decoding is bound by memory."""
    busy = sum(r.busy for _, r in results) / len(results)
    prompts = sum(r.prompt_seconds for _, r in results) / len(results)
    parts = {"matmul": prompts, "memory_bound": busy - prompts, "wait_data": max(0.0, seconds - busy)}
    one = bill(server.job, seconds, tokens, [parts])
    scale = 1e6 / tokens
    return (
        None if one.cost_per_step is None else one.cost_per_step * scale,
        None if one.energy_j_per_step is None else one.energy_j_per_step * scale,
    )
