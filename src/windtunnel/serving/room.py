"""Memory of a server: weights, activations, and the cache in what is left."""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import PlanError
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.lengths import cache_bytes
from windtunnel.serving.server import Server, more_room, narrower_weights
from windtunnel.serving.step_times import StepTimes

CONTEXT = 1.5e9
"""Bytes of CUDA context, NCCL and captured graphs of an engine that sleeps beside a trainer; assumed."""

GIB = float(2**30)

DRIVER = 0.42 * GIB
"""Bytes that a driver keeps of the memory that it prints: 24 GiB of an RTX 3090 are 23.58 to PyTorch (vllm-project/vllm issue
10517), 79.65 of an H100 79.22 (pull request 10511)."""

SM_CONTEXT = 0.35 * GIB / 82
"""Bytes of a context for each SM: 0.35 GiB on the 82 of an RTX 3090 (issue 10517)."""

USUAL_SMS = 108
"""SMs of a GPU whose entry does not say."""

FEWER_SEATS = 128
"""Seats that are advised where the logits of all of them leave no room."""

NCCL = 0.6 * GIB
"""Bytes of communicators and their buffers where a model is cut; assumed."""

GRAPHS = 0.4 * GIB
"""Bytes of captured graphs: 0.36 GiB (gpustack/runner pull request 251)."""

LIVE = 3.0
"""Copies of a pass's hidden states that live at once beside the widest layer's: 2.07 GiB for 20,000 tokens of Llama 3.1 8B
(vllm-project/vllm issue 10517)."""


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
    engine, plan, model = server.engine, server.plan, server.model
    weights, activations, context = times.weights(), pass_bytes(server), context_bytes(server)
    cache = ENGINES[engine.name].cache_bytes(engine, usable_bytes(server), weights, activations, context)
    token, state = cache_bytes(server)
    if cache <= token * engine.block + state:
        raise PlanError("model", model.name, *_what_fits(server, weights, activations))
    held = engine.running * state if state < cache / engine.running else cache * state / (state + token * 4096.0)
    lane = int((cache - min(held, 0.5 * cache)) / max(token, 1e-9) / plan.pp) if token else 1 << 40
    if server.context is not None and lane < server.context:  # engines refuse to start
        allowed = f"at most {lane:,} tokens, which the cache of a copy holds"
        raise PlanError("--max-model-len", server.context, allowed, f"Write --max-model-len {lane}. {more_room(server)}")
    return CacheRoom(weights, activations, context, cache, token, state, lane, lane * plan.pp * plan.dp)


def usable_bytes(server: Server) -> float:
    """Bytes of a GPU that an engine sees."""
    return server.job.cluster.gpu.memory - DRIVER


def context_bytes(server: Server) -> float:
    """Bytes of CUDA's context, communicators and captured graphs, as the engine counts them."""
    gpu, engine = server.job.cluster.gpu, server.engine
    graphs = GRAPHS if engine.graph_tokens and engine.counts_graphs else 0.0
    return SM_CONTEXT * (gpu.sms or USUAL_SMS) + (NCCL if server.plan.gpus > 1 else 0.0) + graphs


def pass_bytes(server: Server) -> float:
    """Bytes of the largest pass: hidden states and the widest layer of all its tokens, of experts those of every copy of a token;
    or, where these are more, what the sampler makes of the logits of all seats."""
    engine, plan, model = server.engine, server.plan, server.model
    tokens = max(engine.prefill_chunk or engine.step_tokens, engine.running)
    wide = LIVE * model.hidden + 3.0 * model.ffn / plan.tp
    if model.experts:
        copies, inner = model.top_k / plan.ep, model.expert_width * plan.ep / plan.expert_ranks
        wide = max(wide, LIVE * model.hidden + copies * (model.expert_hidden + 3.0 * inner))
    seats = min(engine.running, tokens)
    return max(2.0 * tokens * wide, ENGINES[engine.name].sampler * seats * model.vocab)


def _narrow_enough(server: Server, usable: float) -> str | None:
    """The widest format of weights of which `usable` bytes hold them all; None if none does."""
    while (form := narrower_weights(server)) is not None:
        server = replace(server, weights=form, attention_weights=form, dense_weights=form)
        if StepTimes(server).weights() < usable:
            return form
    return None


def _what_fits(server: Server, weights: float, activations: float) -> tuple[str, str]:
    """(what is allowed, what to type) for a model that does not fit."""
    gpu, plan = server.job.cluster.gpu, server.plan
    seen, context = usable_bytes(server), context_bytes(server)
    empty, left = (
        ENGINES[server.engine.name].cache_bytes(server.engine, seen, each, activations, context) for each in (0.0, weights)
    )
    usable = empty * weights / (empty - left)  # where weights leave nothing: a byte of them may cost the cache less than one
    allowed = f"weights below {usable / 1e9:.0f} GB a GPU of {gpu.name}; these are {weights / 1e9:.0f} GB"
    if usable <= 0.0:
        return allowed, f"Write --step-tokens {max(1, server.engine.step_tokens // 4)}."
    ranks = plan.gpus * weights / usable
    tp = next((tp for tp in (1, 2, 4, 8, 16, 32, 64) if tp >= ranks and server.model.heads % tp == 0), None)
    narrow, seats = _narrow_enough(server, usable), FEWER_SEATS
    hints = [f"--tp {tp} --gpus {tp}"] if tp is not None else []
    hints += [f"--weights {narrow}"] if narrow else []
    spared = activations - pass_bytes(replace(server, engine=replace(server.engine, running=min(seats, server.engine.running))))
    hints += [f"--running {seats}"] if usable + spared > weights else []
    return allowed, f"Write {' or '.join(hints)}." if hints else "Choose more GPUs, or a GPU with more memory."
