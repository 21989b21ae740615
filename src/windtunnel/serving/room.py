"""Memory of a server: weights, activations, and the cache in what is left."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.base.errors import PlanError
from windtunnel.serving.lengths import cache_bytes
from windtunnel.serving.server import Server, more_room, narrower_weights
from windtunnel.serving.step_times import StepTimes

CONTEXT = 1.5e9
"""Bytes of CUDA context, NCCL and captured graphs; assumed (vLLM prints 0.5 to 2 GiB for graphs)."""

LIVE = 6.0
"""Copies of a pass's hidden states that live at once beside the widest layer's; assumed."""


@dataclass(frozen=True)
class CacheRoom:
    """Bytes on the fullest GPU: `weights`, `activations` of the largest pass, `context`, `cache`; `token`, `state`: bytes of a
    token in the cache and of a request's states. `tokens`: what the caches of a replica's lanes hold, `lane_tokens` that of one."""

    weights: float
    activations: float
    context: float
    cache: float
    token: float
    state: float
    lane_tokens: int
    tokens: int

    def requests(self, length: float) -> float:
        """Requests of `length` tokens that a lane holds at once."""
        each = self.token * length + self.state
        return self.lane_tokens * self.token / each if each > 0.0 else float("inf")


def room_of(server: Server, times: StepTimes) -> CacheRoom:
    """The memory of a server. PlanError, with the smallest number of GPUs that would do, if no token fits."""
    gpu, engine, plan, model = server.job.cluster.gpu, server.engine, server.plan, server.model
    weights = times.weights()
    inner = max(model.ffn, (model.expert_width * model.top_k if model.experts else 0) // plan.ep) // plan.tp
    tokens = max(engine.step_tokens if not engine.prefill_chunk else engine.prefill_chunk, engine.running)
    activations = 2.0 * tokens * (LIVE * model.hidden + 3.0 * inner) + 4.0 * min(engine.running, tokens) * model.vocab / plan.tp
    if engine.memory_after_weights:
        cache = engine.memory * (gpu.memory - weights - activations - CONTEXT)
    else:
        cache = engine.memory * gpu.memory - weights - activations - CONTEXT
    token, state = cache_bytes(server)
    if cache <= token * engine.block + state:
        raise PlanError("model", model.name, *_what_fits(server, weights, activations))
    held = engine.running * state if state < cache / engine.running else cache * state / (state + token * 4096.0)
    lane = int((cache - min(held, 0.5 * cache)) / max(token, 1e-9) / plan.pp) if token else 1 << 40
    if server.context is not None and lane < server.context:  # engines refuse to start
        allowed = f"at most {lane:,} tokens, which the cache of a copy holds"
        raise PlanError("--max-model-len", server.context, allowed, f"Write --max-model-len {lane}. {more_room(server)}")
    return CacheRoom(weights, activations, CONTEXT, cache, token, state, lane, lane * plan.pp * plan.dp)


def _what_fits(server: Server, weights: float, activations: float) -> tuple[str, str]:
    """(what is allowed, what to type) for a model that does not fit."""
    gpu, plan = server.job.cluster.gpu, server.plan
    usable = server.engine.memory * gpu.memory - activations - CONTEXT
    allowed = f"weights below {usable / 1e9:.0f} GB a GPU of {gpu.name}; these are {weights / 1e9:.0f} GB"
    if usable <= 0.0:
        return allowed, f"Write --step-tokens {max(1, server.engine.step_tokens // 4)}."
    ranks = plan.gpus * weights / usable
    tp = next((tp for tp in (1, 2, 4, 8, 16, 32, 64) if tp >= ranks and server.model.heads % tp == 0), None)
    narrow = narrower_weights(server)
    hints = [f"--tp {tp} --gpus {tp}"] if tp is not None else []
    hints += [f"--weights {narrow}"] if narrow else []
    return allowed, f"Write {' or '.join(hints)}." if hints else "Choose a GPU with more memory."
