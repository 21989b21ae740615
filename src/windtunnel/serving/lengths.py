"""What of a forward pass depends on lengths of requests: attention over prompts, attention over the cache, recurrences; bytes of
the cache."""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.base.dtypes import FORMATS
from windtunnel.serving.server import Server
from windtunnel.spec.model import LayerKind
from windtunnel.workload.blocks.layer import layer
from windtunnel.workload.mixer import Mixing, mixer_of
from windtunnel.workload.ops import Kind, Op

__all__ = ["Mixing", "Passing", "cache_bytes", "draft_kind", "mixing_of", "passing_of", "scan_row"]


class Passing(NamedTuple):
    """A forward pass of a lane: prompt tokens in `chunks` pieces with `pairs` of a prompt token and a token that it sees;
    `decodes` requests that read `cached` tokens in all, and verify `verified` drafted ones."""

    prompt: int
    chunks: int
    pairs: float
    decodes: int
    cached: float
    verified: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the pass."""
        return self.prompt + self.decodes + self.verified


def mixing_of(server: Server, kind: LayerKind) -> Mixing:
    """What mixes tokens in a layer of `kind`."""
    return mixer_of(kind.mixer).mixing(server.model, server.plan.tp, kind.local)


def cache_bytes(server: Server) -> tuple[float, float]:
    """Bytes of a token in the cache of the fullest GPU, over all of its layers; and bytes of states of a request."""
    width, token, state = FORMATS[server.kv].width, 0.0, 0.0
    share = -(-server.model.layers // server.plan.pp) / server.model.layers
    for kind, count in server.model.kind_counts.items():
        mixing = mixing_of(server, kind)
        if mixing.reused:
            continue
        if mixing.keeps_all:
            token += count * (mixing.cache * width / mixing.stride + mixing.index)
        if mixing.window is not None:
            state += count * mixing.cache * width * mixing.window
        state += count * mixing.state
    if server.drafter is not None:
        more, states = cache_bytes(server.drafter)
        return token * share + more, state * share + states
    drafting = draft_kind(server)
    if drafting is not None:
        token += mixing_of(server, drafting).cache * width / share  # all of it on the last stage
    return token * share, state * share


def draft_kind(server: Server) -> LayerKind | None:
    """The kind of the layer that drafts: the model's further one, or a dense one; None without one."""
    if server.speculation is None or server.drafter is not None or server.speculation.method == "ngram":
        return None
    return server.model.further_kind if server.speculation.method == "mtp" else server.model.usual_kind


def scan_row(server: Server, kind: LayerKind, tokens: int) -> Op | None:
    """The recurrence of a layer of `kind` over a prompt of `tokens`; None without one."""
    job = server.job
    at = job.model_copy(update={"plan": job.plan.model_copy(update={"seq": max(tokens, 1), "micro_batch": 1})})
    rows = [op for unit in layer(at, LayerKind(kind.mixer, "none", kind.local)) for op in unit.forward if op.kind is Kind.SCAN]
    return rows[0] if rows else None


def passing_of(counts: Int64s, computed: Int64s, prefill: Bools) -> Passing:
    """The pass over `counts` tokens of requests of which `computed` are in the cache; `prefill`: whose tokens are a prompt's."""
    prompt = counts[prefill]
    before = computed[prefill]
    pairs = float((prompt * before + prompt * (prompt + 1) / 2.0).sum())
    rest = ~prefill
    decodes = int(rest.sum())
    verified = int(counts[rest].sum()) - decodes
    return Passing(int(prompt.sum()), len(prompt), pairs, decodes, float(computed[rest].sum() + rest.sum()), verified)
