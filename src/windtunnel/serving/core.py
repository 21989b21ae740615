"""What the C++ core needs to serve requests as `simulate.py` does, but far faster: costs of passes as numbers, loads as columns.

The core knows the three engines' rules, drafts, prefix caches, sessions, and ranks that begin passes together. It leaves to Python
what it does not know: tiers behind the cache, rules and passes of others' classes, names of blocks beyond 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dtypes import FORMATS
from windtunnel.compute.engines.file import curve_of
from windtunnel.compute.engines.seconds import code_of
from windtunnel.engine import serve
from windtunnel.serving.cache import OWN, names_of
from windtunnel.serving.drafting import DraftedTimes
from windtunnel.serving.engine import ServeEngine
from windtunnel.serving.engines.rules import rules_of
from windtunnel.serving.lengths import Mixing, Passing
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.speculation import AHEAD, ROW, SHIFT
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec.model import LayerKind

RULES_NUMBERS = {"ratio_start": 1.0, "ratio_floor": 0.0, "ratio_fall": 1.0, "clip": 0, "retract_ahead": 0, "look": 0}
"""What some rules read beside an engine's limits, for those that don't."""

Priced = list[tuple[StepTimes, LayerKind, Mixing]]


class CoreCosts(NamedTuple):
    """Passes of a server in the core, and the layers of whose prompts it asks, in its order; the last one drafts, if one does."""

    costs: serve.PassCosts
    kinds: Priced

    def price(self, kind: int, prompt: int, chunks: int, pairs: float) -> float:
        """`StepTimes.prompt_rate` of the layer with this number."""
        times, layer, mixing = self.kinds[kind]
        return times.prompt_rate(layer, mixing, Passing(prompt, chunks, pairs, 0, 0.0))


def run_on_core(
    times: StepTimes, loads: Sequence[ServeLoad], blocks: int, counts: Sequence[int], limits: dict[str, Any]
) -> list[dict[str, Any]] | None:
    """What happens on lanes whose caches have `blocks`; None where Python has to run them. `limits`: seconds and passes that are
    the simulation's own. Errors as of `engine.serve.run`."""
    engine = times.server.engine
    if type(times) not in (StepTimes, DraftedTimes) or times.server.tiers:
        return None
    rules = rules_of(engine)
    name = vars(type(rules)).get("core")  # not a parent's: a child may choose otherwise
    if name is None:
        return None
    columns = [_columns(load, engine.block) for load in loads]
    known = [load for load in columns if load is not None]
    if len(known) < len(columns):
        return None
    costs = _costs_of(times, len(loads) > 1)
    numbers = rules.core_numbers() if hasattr(rules, "core_numbers") else {}
    setting = {"rules": name, "blocks": blocks, **RULES_NUMBERS, **numbers, **_engine_numbers(engine), **_draft_columns(times)}
    return serve.run(costs.costs, costs.price, setting | limits, known, counts)


def _costs_of(times: StepTimes, together: bool) -> CoreCosts:
    """Costs of passes, of ranks that begin them together or of one; made once for a server."""
    if together not in times.on_core:
        small = times.small_model if isinstance(times, DraftedTimes) else None
        inner = None if small is None else _costs_of(small, False)
        own, shared = times.parts if together else (None, None)
        curves: dict[str, serve.Points] = {
            "rows": (times.sizes, times.table),
            "heads": times.heads,
            "own": None if own is None else (times.sizes, own),
            "shared": None if shared is None else (times.sizes, shared),
            "draft_rows": None,
            "draft_heads": None,
        }
        kinds: Priced = [(times, kind, mixing) for kind, _, mixing in times.kinds]
        layer, drafts = None, 0
        if isinstance(times, DraftedTimes):
            drafts = times.server.drafts
            if small is None:
                kind, mixing = times.draft_layer
                layer, curves["draft_rows"] = layer_numbers(times, 1, mixing), (times.sizes, times.draft_rows)
                curves["draft_heads"] = times.draft_heads
                kinds = [*kinds, (times, kind, mixing)]
        rows = [layer_numbers(times, count, mixing) for _, count, mixing in times.kinds]
        costs = serve.passes(curves, rows, _host_numbers(times), drafts, layer, None if inner is None else inner.costs)
        times.on_core[together] = CoreCosts(costs, kinds if inner is None else [*kinds, *inner.kinds])
    made: CoreCosts = times.on_core[together]
    return made


def layer_numbers(times: StepTimes, count: int, mixing: Mixing) -> dict[str, float]:
    """What `StepTimes.cached_seconds` and `prompt_seconds` make of `count` layers, as cpp/serve/passes.h names it."""
    device, moves = times.device, times.pointwise
    numbers: dict[str, float] = {
        "layers": float(count),
        "scan": mixing.scan,
        "attends": mixing.queries > 0,
        "indexed": mixing.index > 0.0,
        "most": -1.0 if mixing.most is None else float(mixing.most),
        "stride": float(mixing.stride),
        "picked": -1.0 if mixing.picked is None else float(mixing.picked),
        "window": float(mixing.window or 0),
        "state": mixing.state,
        "kept": times.kept_seconds(mixing),
        "reread": times.reread(mixing),
        "heads": float(mixing.queries),
        "move_latency": moves.latency,
        "move_rate": moves.memory * device.bandwidth,
        "index_bytes": mixing.index + 8.0 / mixing.stride,
        "index_flops": mixing.index_flops,
        "index_rate": times.index_rate,
        "sms": device.sms,
    }
    names = ("groups", "elements", "wide", "dim", "width", "latency", "memory", "rate", "setup", "key", "merge", "blend")
    if not mixing.queries or mixing.scan:
        return numbers | dict.fromkeys(names, 1.0)
    groups = 1.0 if mixing.absorbed else float(mixing.groups)
    elements = mixing.cache / groups
    wide = mixing.absorbed / (2.0 * mixing.queries) if mixing.absorbed else float(mixing.dim + mixing.value)
    dim = elements if mixing.absorbed else float(mixing.dim)
    curve = curve_of(times.curves.latent_decode if mixing.absorbed else times.curves.decode, times.server.kv)
    memory, rate = curve.memory * device.bandwidth, curve.rate * float(device.peak[code_of("bf16")])
    values = (groups, elements, wide, dim, FORMATS[times.server.kv].width, curve.latency, memory, rate)
    return numbers | dict(zip(names, (*values, curve.setup, curve.key, curve.merge, curve.blend), strict=True))


def _host_numbers(times: StepTimes) -> dict[str, Any]:
    """What the host adds to a pass, and which passes are captured graphs."""
    engine, model = times.server.engine, times.server.model
    return {
        "kernels": engine.kernels,
        "prompts": engine.prompts,
        "launched": engine.layer_host * model.layers,
        "called": engine.call_host * times.calls,
        "gap": engine.gap,
        "request_gap": engine.request_gap,
        "sent": engine.sent,
        "graph_tokens": times.graph_limit,
        "captures_prompts": engine.captures_prompts,
        "padded": not engine.graphs,
        "graph_sizes": times.graph_sizes.astype(np.float64),
        "data_ranks": float(times.server.plan.dp),
    }


def _engine_numbers(engine: ServeEngine) -> dict[str, Any]:
    """Limits of a scheduler."""
    names = (
        "step_tokens",
        "prefill_chunk",
        "running",
        "block",
        "polls",
        "reserves_prompt",
        "keeps_blocks",
        "ahead",
        "cuts_prompts",
    )
    return {name: getattr(engine, name) for name in names}


def _draft_columns(times: StepTimes) -> dict[str, Any]:
    """The row of passes from which all requests take theirs; empty without drafts."""
    row, none = times.server.speculation, np.zeros(0, np.int64)
    columns = (none, none, none) if row is None else (row.tokens, row.sums, row.areas)
    numbers = {"drafts": times.server.drafts, "draft_row": ROW, "draft_ahead": AHEAD, "draft_shift": SHIFT}
    return numbers | dict(zip(("draft_tokens", "draft_sums", "draft_areas"), columns, strict=True))


def _columns(load: ServeLoad, block: int) -> dict[str, Any] | None:
    """A load for a cache with blocks of `block` tokens; None where its numbers are none for the core."""
    if len(load) and min(int(load.prompt.min()), int(load.output.min())) < 1:
        return None
    names = _names(load, block)
    if names is None:
        return None
    groups, starts, named, per = names
    return {
        "prompt": np.ascontiguousarray(load.prompt, np.int64),
        "output": np.ascontiguousarray(load.output, np.int64),
        "arrival": np.ascontiguousarray(load.arrival, np.float64),
        "users": load.concurrency,
        "after": np.zeros(0, np.int64) if load.after is None else np.ascontiguousarray(load.after, np.int64),
        "pauses": np.zeros(0) if load.pauses is None else np.ascontiguousarray(load.pauses, np.float64),
        "pause": load.pause,
        "outputs_named": load.outputs_named,
        "groups": groups,
        "group_start": starts,
        "named": named,
        "per": per,
    }


def _names(load: ServeLoad, block: int) -> tuple[Int64s, Int64s, Int64s, int] | None:
    """Names of all requests' blocks one after the other, where those of each begin, how many blocks have one, and blocks of a name.
    None for names that do not lie between those of requests' own blocks and of blocks without one."""
    if not load.blocks:
        none = np.zeros(0, np.int64)
        return none, none, none, 1
    lengths = (load.prompt + load.output if load.outputs_named else load.prompt).tolist()
    rows = [names_of(blocks, load.block, block, length) for blocks, length in zip(load.blocks, lengths, strict=True)]
    flat = [name for row in rows for name in row.groups]
    if any(not -OWN < name < OWN for name in flat):
        return None
    starts = np.cumsum([0, *(len(row.groups) for row in rows)], dtype=np.int64)
    return np.array(flat, np.int64), starts, np.array([row.named for row in rows], np.int64), max(row.per for row in rows)
