"""What the verbs of serving take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass, field, fields
from windtunnel.base.dtypes import STATED
from windtunnel.base.options import argument, option, options_of
from windtunnel.serving.engine import ENGINES, EXPERT_KERNELS, EngineSettings
from windtunnel.serving.routing import ROUTERS

if TYPE_CHECKING:
    from windtunnel.spec import Cluster, Model

_SPECULATE = (
    "Drafted tokens: mtp, eagle, ngram or draft=MODEL, how many a pass, and the tokens that it yields (or rate; else as published)."
)
_FORMATS = ", ".join(STATED)
_CACHES = ("bf16", "fp8", "nvfp4")
_DRAFTED = "mtp,drafts=N,accepted=TOKENS"


def _model(more: str = "") -> Any:
    allowed = f"a model of the catalogue, a config.json, {more}or a name as on a hub"
    return argument(f"{allowed[0].upper()}{allowed[1:]}.", metavar="MODEL", offers="models", allowed=allowed, example="llama3.1-8b")


def _machine() -> Any:
    return option(
        "The machine.", metavar="CLUSTER", offers="machines", allowed="a cluster of the catalogue or a file", example="h100-ib"
    )


def _isl() -> Any:
    return option("Prompt length: N, LOW-HIGH, MEAN~CV or MEAN~CV<CAP.", "1024", metavar="TOKENS")


def _osl() -> Any:
    return option("Output length, likewise.", "1024", metavar="TOKENS")


def _seed() -> Any:
    return option("Seed of drawn lengths and arrivals.", 1, least=0)


def _same_option(name: str) -> Any:
    """The option of `serve-predict` with this name."""
    said = ServeOptions.__dataclass_fields__[name]
    return field(default=said.default, metadata=said.metadata)


_SESSIONS = "Turns of sessions: a session's id, its prompt (isl, or new_isl), output (osl) and wait before it."


@dataclass(frozen=True)
class ServeOptions:
    """What `serve-predict` takes."""

    model: str | Path | Model = _model("a line, script or manifest that starts a server, ")
    on: str | Path | Cluster = _machine()
    gpus: int | None = option("GPUs of all copies; default: those of one.", None, least=1)
    engine: str = option(f"{ENGINES.own_words}.", ENGINES.default)
    _: KW_ONLY
    tp: int | None = option("Ranks that share attention heads; default: those of a node.", None, least=1)
    pp: int = option("Pipeline stages.", 1, least=1)
    dp: int = option("DP attention: groups of tp ranks that share the experts.", 1, least=1)
    ep: int = option("Ranks, of tp x dp, that divide the experts.", 1, least=1)
    weights: str | None = option(f"Format of the weights: {_FORMATS}; default: the checkpoint's.", None, choices=STATED)
    attention_weights: str | None = option("Format of attention's projections, where it differs.", None)
    kv: str | None = option("Format of the cache: bf16, fp8 or nvfp4; default: the checkpoint's, else bf16.", None, choices=_CACHES)
    isl: int | str = _isl()
    osl: int | str = _osl()
    concurrency: int | None = option("Closed loop: users with one request each at a time; default: 16.", None, least=1)
    rate: float | None = option("Open loop: requests a second.", None)
    burstiness: float = option("Of --rate: 1 is Poisson, below is burstier.", 1.0)
    requests: int | None = option("How many requests; default: ten for each user.", None, least=1)
    trace: str | Path | None = option("Requests of a trace: Azure's, Mooncake's or BurstGPT's columns.", None, metavar="FILE")
    speed: float = option("Of --trace: 2 plays it twice as fast.", 1.0)
    sessions: str | Path | None = option(_SESSIONS, None, metavar="FILE")
    turns: int | str | None = option("Sessions of so many turns, a length as --isl, which is what each turn adds.", None)
    think: float | str = option("Seconds between an answer and the next turn, or a length as --isl.", "0", metavar="SECONDS")
    shared_prefix: str | None = option(
        "A system prompt in front of all requests, or of a share of the sessions.", None, metavar="TOKENS[:SHARE]"
    )
    measured: str | Path | None = option(
        "What the server or its benchmark printed: set beside; its load where none is stated.", None, metavar="FILE"
    )
    passes: str | Path | None = option(
        "Measured passes in place of the engine's kernels: CSV, or what `measure run` wrote of a server.", None, metavar="FILE"
    )
    calibration: str | Path | None = option("Host and client time that `windtunnel calibrate RESULT` wrote.", None, metavar="FILE")
    ttft: float | None = option("Limit of the time to the first token.", None, metavar="SECONDS", reads="seconds")
    tpot: float | None = option("Limit of the time of each further token.", None, metavar="SECONDS", reads="seconds")
    step_tokens: int | None = option("Most tokens of a forward pass; default: the engine's.", None, least=1)
    running: int | None = option("Most requests that run at once.", None, least=1)
    polls: int | None = option("Decoding passes between two looks at new requests; default 1.", None, least=1)
    memory: float | None = option("Share of GPU memory that the engine may use.", None)
    max_model_len: int | None = option("Most tokens of a request, prompt and output; default: the model's.", None, least=1)
    eager: bool = option("No pass is a captured CUDA graph (--enforce-eager).", False)
    sync: bool = option("Nothing is scheduled ahead of the pass that runs (--no-async-scheduling).", False)
    ahead: bool = option("A pass is chosen while one runs, though its release does not (vLLM's --async-scheduling).", False)
    graphs: str | None = option(
        "Batches with a captured CUDA graph: 1,2,4,8 alone, 512+ for all up to 512, padded, or decodes for none over prompts; "
        "default: the engine's, padded.",
        None, metavar="SIZES",
    )  # fmt: skip
    whole_prompts: bool = option("No prompt is cut (TensorRT-LLM without enable_chunked_prefill).", False)
    release: str | None = option("Release of the engine, such as 0.11.0; default: a recent one.", None)
    expert_kernel: str | None = option(
        "Kernel of fused experts, as TensorRT-LLM's moe_config or vLLM states it; default: the quickest.",
        None,
        choices=EXPERT_KERNELS,
    )
    prefill: str | None = option("Prompts have copies of their own beside --gpus, which decode.", None, metavar="gpus=N,tp=N")
    experts: str | None = option(
        "Experts have GPUs of their own beside --gpus, which compute attention.", None, metavar="gpus=N[,micro=N]"
    )
    speculate: str | None = option(_SPECULATE, None, metavar=_DRAFTED)
    tier: Sequence[str] = option(
        "A tier of the cache behind the GPUs' of a copy, the fastest first; may be repeated.",
        (),
        metavar="host=512GB,bandwidth=50GB/s",
    )
    requests_out: str | None = option(
        "Write what each request did as CSV: arrival, latencies, tokens, cached ones, preemptions.",
        None,
        metavar="FILE.csv",
        writes=True,
    )
    seed: int = _seed()
    record: bool = option("The answer has a `detail` for pages: latencies of each request, what passes did.", False, shown=False)
    overrides: Sequence[str] = shared.sets()


@dataclass(frozen=True)
class ServeSearchOptions:
    """What `serve-search` takes."""

    model: str | Path | Model = _model()
    on: str | Path | Cluster = _machine()
    gpus: int | None = option("Most GPUs of a copy; default: those of a node.", None, least=1)
    _: KW_ONLY
    engines: Sequence[str] = option(f"{ENGINES.own_words}; several with commas.", (ENGINES.default,), word="--engine", commas=True)
    weights: Sequence[str] = option(
        f"Formats of the weights: {_FORMATS}, with commas; default: the checkpoint's.", (), commas=True, choices=STATED
    )
    kv: Sequence[str] = option("Formats of the cache: bf16, fp8, nvfp4, likewise.", (), commas=True, choices=_CACHES)
    isl: int | str = _isl()
    osl: int | str = _osl()
    users: Sequence[int] | None = option(
        "Users of a copy that are tried; default: 1 to 1,024.", None, metavar="N,N,...", least=1, commas=True
    )
    ttft: float | None = option("Limit of the time to the first token, for nine of ten.", None, metavar="SECONDS", reads="seconds")
    tpot: float | None = option(
        "Limit of the time of each further token, for nine of ten.", None, metavar="SECONDS", reads="seconds"
    )
    speculate: Sequence[str] = option(f"{_SPECULATE} May be repeated; none: no drafts.", (), metavar=_DRAFTED)
    rate: float | None = option("Requests a second of a whole load: how many copies and GPUs it takes.", None)
    burstiness: float = _same_option("burstiness")
    all_users: int | None = option("Users of a whole load, likewise.", None, least=1)
    attention_weights: str | None = _same_option("attention_weights")
    step_tokens: int | None = _same_option("step_tokens")
    running: int | None = _same_option("running")
    polls: int | None = _same_option("polls")
    memory: float | None = _same_option("memory")
    max_model_len: int | None = _same_option("max_model_len")
    eager: bool = _same_option("eager")
    sync: bool = _same_option("sync")
    ahead: bool = _same_option("ahead")
    graphs: str | None = _same_option("graphs")
    whole_prompts: bool = _same_option("whole_prompts")
    release: str | None = _same_option("release")
    expert_kernel: str | None = _same_option("expert_kernel")
    prefill: bool = option("Try prompts on copies of their own too, with --gpus GPUs in all for either kind.", False)
    seed: int = _seed()
    processes: int | None = option("Worker processes; default: one for each core.", None, word="--jobs", least=1)
    progress: Callable[[float], object] | None = shared.progress()
    overrides: Sequence[str] = shared.sets()


@dataclass(frozen=True)
class ServeFleetOptions:
    """What `serve-fleet` takes."""

    model: str | Path | Model = _model("a line, script or manifest that starts a server, ")
    on: str | Path | Cluster = _machine()
    replicas: int | None = option("How many; default: the fewest that keep the limits.", None, least=1, most=1024)
    engine: str = _same_option("engine")
    _: KW_ONLY
    tp: int | None = _same_option("tp")
    pp: int = _same_option("pp")
    dp: int = _same_option("dp")
    ep: int = _same_option("ep")
    weights: str | None = _same_option("weights")
    attention_weights: str | None = _same_option("attention_weights")
    kv: str | None = _same_option("kv")
    isl: int | str = _isl()
    osl: int | str = _osl()
    users: int | None = option("Closed loop: users with one request each at a time.", None, least=1, most=100_000)
    rate: float | None = option("Open loop: requests a second; of --curve the mean.", None)
    burstiness: float = _same_option("burstiness")
    requests: int | None = option("How many; default: ten for each user, or ten minutes.", None, least=1, most=2_000_000)
    curve: str | None = option(
        "The rate over a day: seconds (or hour) and requests a second, or swing=0.6.", None, metavar="FILE|swing=S"
    )
    hours: float | None = option("Of --rate and --curve; default: those of the curve.", None)
    trace: str | Path | None = _same_option("trace")
    speed: float = _same_option("speed")
    sessions: str | Path | None = _same_option("sessions")
    turns: int | str | None = _same_option("turns")
    think: float | str = _same_option("think")
    shared_prefix: str | None = _same_option("shared_prefix")
    ttft: float | None = option("Limit of the time to the first token, for nine of ten.", None, metavar="SECONDS", reads="seconds")
    tpot: float | None = option(
        "Limit of the time of each further token, for nine of ten.", None, metavar="SECONDS", reads="seconds"
    )
    router: str = option(f"{ROUTERS.own_words}.", ROUTERS.default)
    prefill: str | None = option(
        "Prompts on replicas of their own: their plan, how many (replicas), their machine (on).",
        None,
        metavar="tp=N[,replicas=N][,on=M]",
    )
    mtbf: float | None = option("Mean hours until a replica fails.", None, metavar="HOURS")
    cold_start: float = option("Seconds until a replica that starts takes requests.", 120.0, metavar="SECONDS")
    autoscale: str | None = option("Replicas at least and at most: an autoscaler follows the load.", None, metavar="LEAST-MOST")
    target: float | None = option("Requests of a replica at which the autoscaler aims; default: by the limits.", None)
    step_tokens: int | None = _same_option("step_tokens")
    running: int | None = _same_option("running")
    polls: int | None = _same_option("polls")
    memory: float | None = _same_option("memory")
    max_model_len: int | None = _same_option("max_model_len")
    eager: bool = _same_option("eager")
    sync: bool = _same_option("sync")
    ahead: bool = _same_option("ahead")
    graphs: str | None = _same_option("graphs")
    whole_prompts: bool = _same_option("whole_prompts")
    release: str | None = _same_option("release")
    expert_kernel: str | None = _same_option("expert_kernel")
    requests_out: str | None = _same_option("requests_out")
    seed: int = _seed()
    overrides: Sequence[str] = shared.sets()


def settings_words(options: ServeOptions | ServeSearchOptions) -> list[str]:
    """What the options say of every copy beside its plan and formats, as words of a command line."""
    names, words = {"attention_weights", "max_model_len", *(one.name for one in fields(EngineSettings))}, list[str]()
    for one in options_of(type(options)):
        value = getattr(options, one.name)
        if one.name in names and value != one.default:
            words += [one.word] if one.kind == "flag" else [one.word, str(value)]
    return words
