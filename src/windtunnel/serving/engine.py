"""What an inference engine does with requests, as numbers: its limits, its blocks, what its kernels fuse."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.base.registry import Registry
from windtunnel.spec import GPU

GAP = 0.25e-3
"""Seconds between passes in which the GPU has no kernel: what is left of the host's work where the engine schedules ahead, as all
three do by default; 200 to 300 us by vllm-project/vllm issue 10634, in which 5 to 6 ms without it were measured."""

UNHIDDEN = 4.6e-3
"""Seconds of host work between passes where the engine does not schedule ahead: 4.6 ms beside 10 requests of 4,000 tokens in vLLM
V1 (vllm-project/vllm pull request 24174); 4 ms and 5 to 13 in V0 (issue 6854)."""

REQUEST = 12.7e-6
"""Seconds in which a scheduler in Python chooses one more decoding request: 12.7 us in vLLM 0.27 (openfabric-systems/simllm pull
request 204). An engine that schedules ahead hides them behind its kernels."""

HOST_TASK = 130e-6
"""Seconds by which a collective over NICs lasts longer inside a graph that vLLM or SGLang captured. NCCL, and RCCL after it, hands
the network's work to its proxy by a host function before the kernel (enqueue.cc, hostStreamPlanCallback: "host tasks impose a high
performance cost in CUDA"), and a graph keeps it as a node, so the kernel waits for the host; a call outside of a graph hands it
over when it is launched. Read off public steps of DeepSeek-R1 with tp 16 over two nodes of H100 and H800 (23, 31, 33, 38 and 52 ms
a token, 124 calls each, of which kernels and wire explain 11 ms: 95, 165, 180, 220 and 330 us a call): the mean of the faster two.
TensorRT-LLM's public servers of that kind (14 ms a token for two users) leave no room for it; why is not known."""

CALL = 50e-6
"""Seconds in which a host calls an operator of a pass without a captured graph. Published: 34.4 ms for the 48 layers of
Qwen3-30B-A3B with tp 4 (vllm-project/vllm issue 45709), 82.6 ms for the 61 of DeepSeek-V3 (sgl-project/sglang pull request 12160),
16.6 ms for the 36 of Qwen3-4B (wejoncy/sfllm pull request 46), 21 ms for 28 of a dense model (vllm-project/vllm-omni issue 7960);
over the operators of a layer here these are 51, 52, 48 and 83 us."""


PROMPTS = 1.25
"""Seconds of a pass that holds prompts over those of its kernels, which tables time alone on a cool GPU: power holds the clock
of long products, loads of experts are uneven, and kernels wait for each other. One figure for three engines and all GPUs, where a
token's median error is least on 704 loads of public servers that `benchmarks/served.py` records (`--prompts`): it falls from 9.4
to 8.2 %, its bias from -4 to 0, a first token's error from 24 to 17 %. Products of a training step take 1.16 times as long as
alone on Hopper (`catalog/calibration/training.toml`)."""


EXPERT_KERNELS = ("cutlass", "deepgemm", "triton")
"""Kernels of fused experts that a server may state; a GPU on which they were not timed runs the quickest."""


@dataclass(frozen=True)
class ServeEngine:
    """Limits of an engine's scheduler.

    `step_tokens`: most tokens of one forward pass; `prefill_chunk`: most prompt tokens of one pass of prefill (SGLang);
    `running`: most requests that run at once; `block`: tokens of a block of the cache; `memory`: share of GPU memory, of which
    each engine says what it holds (`InferenceEngine.cache_bytes`); `graph_tokens`: largest batch that runs as a CUDA
    graph, padded to the next captured size, in tokens or in requests, whichever the engine counts
    (`InferenceEngine.graph_tokens_of`); `fuses_quantising`: norms and activations write quantised outputs; `fuses_reduction`: a
    tensor-parallel all-reduce, the residual add and the norm after it are one kernel; `polls`: passes that decode between two looks
    at new requests (SGLang's --scheduler-recv-interval; a pass of prompts is followed by a look);
    `reserves_prompt`: a request starts only if all of its prompt has room, not its first chunk alone (vLLM's
    scheduler_reserve_full_isl); `keeps_blocks`: a preempted request may find its blocks again (vLLM's prefix caching, on by
    default); `gap`: seconds of host work between passes that nothing hides, `request_gap`: those of each decoding request;
    `layer_host`: seconds in
    which the host launches a layer's kernels, where no captured graph does. `ahead`: the next pass is chosen when the one before it
    begins, so a request that comes meanwhile waits for both; `call_host`: seconds in which the host calls a kernel of a pass that
    no graph covers: of more than `graph_tokens`, and of prompts, unless the engine `captures_prompts`. `sent`: seconds of
    the process that has most to do for a decoding request in each pass, which all of a DP-attention rank's requests share: a pass
    lasts as long; `host_task`: seconds by which a captured collective over NICs lasts longer. What a measured
    result corrects (`serving.calibrated`): `kernels`, seconds of kernels over the predicted ones, and `client`, seconds of the
    front end and the client before a first token. `graphs`: numbers of decoding requests of which passes are captured, where none
    between them is padded; empty: every pass up to `graph_tokens` is padded to the next captured one. `cuts_prompts`: a
    prompt for which a pass has no room is cut, unless it is longer than any pass. `gates_apart`: gates of linear attention have a
    product each. `expert_kernel`: the kernel of fused experts, where it is not the quickest (`EngineCurves.other_experts`).
    `counts_graphs`: memory of captured graphs is taken off the cache's. `prompts`: seconds of a pass that holds
    prompts over those of its kernels. `indexed`: seconds in which PyTorch copies a number of a
    recurrence's state by index after a pass has verified drafts, of which the accepted one's state is kept; 0: a kernel does it.
    """

    name: str
    step_tokens: int
    prefill_chunk: int
    running: int
    block: int
    memory: float
    graph_tokens: int
    fuses_quantising: bool
    fuses_reduction: bool
    conservativeness: float = 1.0
    polls: int = 1
    reserves_prompt: bool = False
    keeps_blocks: bool = False
    gap: float = GAP
    request_gap: float = 0.0
    sent: float = 0.0
    host_task: float = 0.0
    layer_host: float = 0.0
    ahead: bool = True
    call_host: float = CALL
    captures_prompts: bool = False
    graphs: tuple[int, ...] = ()
    cuts_prompts: bool = True
    gates_apart: bool = False
    expert_kernel: str = ""
    counts_graphs: bool = True
    indexed: float = 0.0
    kernels: float = 1.0
    prompts: float = PROMPTS
    client: float = 0.0


class InferenceEngine(ABC):
    """An engine: its limits on a machine, and the rules by which it chooses passes."""

    title: ClassVar[str]
    """Its name as people write it."""
    kernels: ClassVar[str]
    """Whose measured kernels price its passes: an engine of `catalog/kernels/engines`."""
    sampler: ClassVar[float] = 4.0
    """Bytes for each logit of a seat while tokens are sampled: one copy in fp32."""

    prompts_alone: ClassVar[bool] = False
    """Whether passes over prompts have no decoding requests."""
    schedules_ahead: ClassVar[tuple[int, ...]] = ()
    """The first release whose scheduler works ahead of the GPU unless it is told not to; empty where all do."""

    unhidden: ClassVar[tuple[float, float]] = (UNHIDDEN, REQUEST)
    """Seconds of host work between passes where nothing is scheduled ahead, and those of each decoding request."""

    promised: ClassVar[float] = 0.0
    """Share of the outputs of running requests that a waiting one finds taken; a run of a fleet counts it so."""

    @abstractmethod
    def limits(self, gpu: GPU, tp: int) -> ServeEngine:
        """Its defaults on `gpu` with `tp` ranks of a copy."""

    def at_release(self, limits: ServeEngine, release: str) -> ServeEngine:
        """`limits` as of a release, such as 0.11.0: before `schedules_ahead` nothing hides the host's work between passes."""
        return limits if release_numbers(release) >= self.schedules_ahead else self.without_ahead(limits)

    def without_ahead(self, limits: ServeEngine) -> ServeEngine:
        """`limits` of an engine that chooses a pass when the one before it has ended: the host's work between them shows."""
        gap, request_gap = self.unhidden
        return replace(limits, gap=gap, request_gap=request_gap, ahead=False)

    def with_ahead(self, limits: ServeEngine) -> ServeEngine:
        """`limits` of an engine that is told to choose a pass while the one before it runs, whatever its release does."""
        return replace(limits, gap=GAP, request_gap=0.0, ahead=True)

    def with_drafts(self, limits: ServeEngine, release: str | None, ahead: bool = False) -> ServeEngine:
        """`limits` where tokens are drafted, as of a release; None: a recent one. `ahead`: it is told to work ahead."""
        return limits

    def graph_tokens_of(self, most: int, each: int) -> tuple[int, ...]:
        """Tokens of captured passes, rising, with graphs of up to `most` requests of `each` tokens."""
        return tuple(size * each for size in captured_sizes(most))

    def without_cuts(self, limits: ServeEngine) -> ServeEngine:
        """`limits` of an engine that computes each prompt in one pass. SpecError where its rules are not known for that."""
        raise SpecError("whole_prompts", True, f"False: {self.title} without chunks of prompts is not modelled")

    def cache_bytes(self, limits: ServeEngine, usable: float, weights: float, activations: float, context: float) -> float:
        """Bytes of the cache on a GPU of `usable` ones: what weights and a profile run of the largest pass leave of its share."""
        return limits.memory * usable - weights - activations - context

    @abstractmethod
    def rules(self, limits: ServeEngine) -> Any:
        """Its `engines.rules.SchedulerRules` with these limits, at the start of a run."""


ENGINES: Registry[InferenceEngine] = Registry(
    "engines",
    "engine",
    {
        "vllm": "serving.engines.vllm:VLLM",
        "sglang": "serving.engines.sglang:SGLANG",
        "trtllm": "serving.engines.trtllm:TRTLLM",
    },
)
"""Engines whose rules are known: each is one file of `engines/`, and a line here. The first is what one gets who names none."""


def engine_of(name: str, gpu: GPU, tp: int = 1) -> ServeEngine:
    """The engine with its defaults on `gpu`. UnknownName for another name."""
    return replace(ENGINES.find(name).limits(gpu, tp), name=name)


def release_numbers(release: str) -> tuple[int, ...]:
    """(0, 11, 0) of 0.11.0, v0.11 and 0.11.0rc2. SpecError for words without a number."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", release.strip())
    if found is None:
        raise SpecError("release", release, "the engine's version, such as 0.11.0")
    return tuple(int(part) for part in found[1].split("."))


def captured_sizes(most: int) -> tuple[int, ...]:
    """Sizes of captured CUDA graphs up to `most`: 1, 2, 4, 8, then every 8 to 256 and every 16 above (vLLM's default)."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, max(most, 256) + 1, 16)]
    return tuple(size for size in sizes if size <= most)


@dataclass(frozen=True)
class EngineSettings:
    """What is stated of an engine, whatever the model and its plan: limits in place of its defaults (`step_tokens`, `running`,
    `memory`, `polls`), no captured graphs (`eager`) or those of `graphs`, as `with_graphs` reads them, a scheduler that does not
    work ahead (`sync`), or does in a release that would not (`ahead`), prompts that are not cut (`whole_prompts`), its `release`,
    else a recent one, and the kernel of its experts (`expert_kernel`), else the quickest."""

    step_tokens: int | None = None
    running: int | None = None
    memory: float | None = None
    polls: int | None = None
    eager: bool = False
    sync: bool = False
    graphs: str | None = None
    whole_prompts: bool = False
    release: str | None = None
    expert_kernel: str | None = None
    ahead: bool = False

    def engine(self, name: str, gpu: GPU, tp: int = 1) -> ServeEngine:
        """The engine `name` on `gpu` with `tp` ranks of a copy, so set. UnknownName for another name, SpecError for a setting that
        it does not have."""
        rules = ENGINES.find(name)
        limits = with_limits(engine_of(name, gpu, tp), self.step_tokens, self.running, self.memory, self.polls)
        limits = with_graphs(limits, self.graphs) if self.graphs is not None else limits
        limits = replace(limits, graph_tokens=0, captures_prompts=False, graphs=()) if self.eager else limits
        limits = rules.at_release(limits, self.release) if self.release is not None else limits
        if self.ahead and self.sync:
            raise SpecError("ahead", True, "either ahead or sync")
        limits = rules.with_ahead(limits) if self.ahead else limits
        limits = rules.without_ahead(limits) if self.sync else limits
        limits = rules.without_cuts(limits) if self.whole_prompts else limits
        if self.expert_kernel not in (None, *EXPERT_KERNELS):
            raise SpecError("expert_kernel", self.expert_kernel, ", ".join(EXPERT_KERNELS))
        limits = limits if self.expert_kernel is None else replace(limits, expert_kernel=self.expert_kernel)
        check_limits(limits)
        return limits


def check_limits(engine: ServeEngine) -> None:
    """SpecError for limits that no batch keeps."""
    if not 0.0 < engine.memory <= 1.0:
        raise SpecError("memory", engine.memory, "a share of the GPU's memory, such as 0.9")
    for path, value in (("step_tokens", engine.step_tokens), ("running", engine.running), ("polls", engine.polls)):
        if value < 1:
            raise SpecError(path, value, "a positive number")


DECODES = "decodes"
"""What `--graphs` says of an engine that captures no pass over prompts (vLLM's cudagraph_mode FULL_DECODE_ONLY)."""


def with_graphs(limits: ServeEngine, stated: str) -> ServeEngine:
    """`limits` with captured graphs as stated: of batches `1,2,4,8` alone, or, as `512+`, of all up to 512 with padding; `decodes`:
    the engine's, but of no pass over prompts. SpecError for other words."""
    if stated.strip() == DECODES:
        return replace(limits, captures_prompts=False)
    padded = re.fullmatch(r"(\d+)\+", stated.strip())
    if padded is not None:
        return replace(limits, graph_tokens=int(padded[1]), graphs=())
    words = [word.strip() for word in stated.split(",")]
    if not all(word.isdigit() and int(word) > 0 for word in words):
        raise SpecError(
            "graphs", stated, "batches of captured graphs, such as 1,2,4,8, the most of those that are padded: 512+, or decodes"
        )
    sizes = tuple(sorted({int(word) for word in words}))
    return replace(limits, graph_tokens=sizes[-1], graphs=sizes)


def with_limits(
    engine: ServeEngine, step_tokens: int | None, running: int | None, memory: float | None, polls: int | None = None
) -> ServeEngine:
    """The engine with stated limits in place of its defaults."""
    changed = {"step_tokens": step_tokens, "running": running, "memory": memory, "polls": polls}
    stated = {key: value for key, value in changed.items() if value is not None}
    if step_tokens is not None and engine.prefill_chunk:
        stated["prefill_chunk"] = step_tokens
    return replace(engine, **stated)  # type: ignore[arg-type]
