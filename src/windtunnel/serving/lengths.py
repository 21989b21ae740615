"""What of a forward pass depends on lengths of requests: attention over prompts, attention over the cache, recurrences; bytes of
the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.serving.server import WIDTHS, Server
from windtunnel.spec.model import LayerKind
from windtunnel.workload.blocks.layer import layer
from windtunnel.workload.ops import Kind, Op


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


@dataclass(frozen=True)
class Mixing:
    """What mixes tokens in layers of one kind, on one GPU. Attention: `queries` heads of `dim` over keys, `value` wide; `cache`:
    elements of a token in the cache; `window`: tokens that are seen at most. A recurrence: `state` bytes of a request, `scan`: its
    row for some tokens. Latent attention multiplies queries with the cached vectors themselves (`absorbed` > 0: FLOP for each
    cached token and query)."""

    queries: int = 0
    groups: int = 1
    dim: int = 0
    value: int = 0
    cache: float = 0.0
    window: int | None = None
    state: float = 0.0
    absorbed: float = 0.0
    scan: bool = False

    def seen_pairs(self, pairs: float, prompt: int) -> float:
        """`pairs` of `prompt` tokens, under the window."""
        return pairs if self.window is None else min(pairs, float(prompt) * self.window)

    def read_tokens(self, cached: float, decodes: int) -> float:
        """Cached tokens that `decodes` requests read, of `cached`."""
        return cached if self.window is None else min(cached, float(decodes) * self.window)


def mixing_of(server: Server, kind: LayerKind) -> Mixing:
    """What mixes tokens in a layer of `kind`."""
    model, tp = server.model, server.plan.tp
    if kind.mixer == "attention":
        seen = model.seen_by(kind.local)
        heads, groups = max(1, seen.heads // tp), max(1, seen.groups // tp)
        if seen.latent:
            width = float((seen.kv_lora_rank or 0) + seen.qk_rope_dim)
            work = 2.0 * heads * (width + (seen.kv_lora_rank or 0))
            return Mixing(heads, heads, seen.qk_dim, seen.v_dim, width, None, 0.0, work)
        dim = seen.dim_per_head
        sides = 1 if seen.global_shared_kv else 2
        return Mixing(heads, groups, dim, dim, float(sides * groups * dim), seen.window if kind.local else None)
    if kind.mixer == "mamba":
        inner = (model.ssm_heads or 0) // tp * model.ssm_head_dim
        groups = max(1, model.ssm_groups // tp)
        return Mixing(
            state=4.0 * inner * model.ssm_state + 2.0 * model.conv_width * (inner + 2 * groups * model.ssm_state), scan=True
        )
    if kind.mixer == "linear":
        heads = max(1, (model.linear_heads or 0) // tp)
        keys = max(1, (model.linear_key_heads or model.linear_heads or 0) // tp)
        channels = heads * model.linear_value_dim + 2 * keys * model.linear_key_dim
        return Mixing(
            state=4.0 * heads * model.linear_key_dim * model.linear_value_dim + 2.0 * model.conv_width * channels, scan=True
        )
    return Mixing()


def cache_bytes(server: Server) -> tuple[float, float]:
    """Bytes of a token in the cache of the fullest GPU, over all of its layers; and bytes of states of a request."""
    width, token, state = WIDTHS[server.kv], 0.0, 0.0
    share = -(-server.model.layers // server.plan.pp) / server.model.layers
    for kind, count in server.model.kind_counts.items():
        mixing = mixing_of(server, kind)
        if mixing.window is None:
            token += count * mixing.cache * width
        else:
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
    if server.speculation is None or server.drafter is not None:
        return None
    return server.model.further_kind if server.speculation.method == "mtp" else LayerKind("attention", "dense", False)


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
