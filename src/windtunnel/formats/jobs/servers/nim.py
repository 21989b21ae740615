"""NVIDIA NIM's containers as the line of the engine inside: `docker run -e NIM_… nvcr.io/nim/meta/llama-3.1-8b-instruct`.

Variables and what beats what: docs.nvidia.com/nim/large-language-models, reference/environment-variables and advanced-configuration
of 2.1, configuration and profiles of 1.12 (read 2026-11).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.scripts.command import ScriptCommands

IMAGE = re.compile(r"nvcr\.io/nim/([\w.-]+)/([\w.-]+)(?::([\w.-]+))?")
_WITHOUT_MODEL = re.compile(r"^(?:llm-nim|nim-llm|vllm|sglang|trtllm|model-free)|-nim$")
"""Names of images that take any model."""
_ENGINE = {"vllm": ("vllm", "serve"), "sglang": ("sglang", "serve"), "trtllm": ("trtllm-serve",)}
_PROFILE = re.compile(
    r"(?P<engine>vllm|sglang|tensorrt_llm|trtllm)\b(?:.*?-(?P<form>bf16|fp16|fp8|nvfp4|mxfp4|int4\w*))?(?:.*?-tp(?P<tp>\d+))?(?:-pp(?P<pp>\d+))?"
)
_FIELDS = {
    "TENSOR_PARALLEL_SIZE": "tp", "PIPELINE_PARALLEL_SIZE": "pp", "MAX_MODEL_LEN": "context", "KVCACHE_PERCENT": "memory",
    "MAX_NUM_SEQS": "running", "MAX_BATCH_SIZE": "running",
}  # fmt: skip
"""Variable -> field of `launch.toml`, whose first flag says it to the engine."""
_EAGER = {"vllm": "--enforce-eager", "sglang": "--disable-cuda-graph"}
_READ = ("MODEL_PROFILE", "MODEL_NAME", "MODEL_PATH", "PASSTHROUGH_ARGS", "DISABLE_CUDA_GRAPH")
_HARMLESS = re.compile(
    r"(?:LOG|JSONL|HTTP|SERVER|CACHE_PATH|SSL|TRIED|OTEL|TELEMETRY|HEALTH|TAGS|SERVED_MODEL|CUSTOM_MODEL|MANIFEST|REPOSITORY|NGC|"
    r"TRUST|FORCE_TRUST|TOKENIZER|CHAT|TOOL|REASONING|ENABLE_(?:OTEL|KV_CACHE_REUSE|AUTO)|DISABLE_LOG|PER_REQ|PROXY|ENABLE_PROMPT)"
)


_DOCKERS = re.compile(
    r"-\w+|--(?:env|gpus|rm|name|volume|publish|shm-size|ipc|network|runtime|user|ulimit|restart|mount|env-file)(?:=.*)?"
)
"""Words of docker's own that end a variable."""


@cache
def _tools() -> dict[str, Any]:
    return table_beside(str(Path(__file__).with_name("launch.py")))


class NimLine(NamedTuple):
    """The line of the engine, what is said of it, and the format of weights that its profile names."""

    words: list[str]
    notes: list[str]
    form: str = ""


def line_of(words: Sequence[str], script: ScriptCommands | None = None) -> NimLine | None:
    """The engine's own line of a command that starts a NIM; None for another. `script`: its variables are those of `-e NAME`."""
    place = next((at for at, word in enumerate(words) if IMAGE.search(word)), None)
    if place is None or not words or words[0].rpartition("/")[2] not in ("docker", "podman", "nerdctl", "image"):
        return None
    found = IMAGE.search(words[place])
    assert found is not None
    said = dict(_variables(words[:place], script.variables if script is not None else {}))
    behind = [word for word in words[place + 1 :] if word not in ("nim-serve", "start-server", "serve")]
    notes: list[str] = []
    profile = _PROFILE.search(said.get("MODEL_PROFILE", ""))
    engine = _engine_of(found, profile, said, notes)
    line = [*_ENGINE[engine], _model_of(found, said)]
    if profile is not None:
        chosen = {"TENSOR_PARALLEL_SIZE": profile["tp"], "PIPELINE_PARALLEL_SIZE": profile["pp"]}
        said = {name: value for name, value in chosen.items() if value} | said
    _take_gpus(words[:place], said, notes)
    flags = _tools()[engine]["read"]
    for name, field in _FIELDS.items():
        if said.get(name):
            line += [f"--{flags[field][0]}", said[name]]
    if said.get("DISABLE_CUDA_GRAPH", "").lower() in ("1", "true") and engine in _EAGER:
        line.append(_EAGER[engine])
    left = sorted(name for name in said if name not in _FIELDS and name not in (*_READ, "GPUS") and not _HARMLESS.match(name))
    if left:
        notes.append("not modelled: " + ", ".join(f"NIM_{name}" for name in left))
    form = (profile["form"] or "") if profile is not None else ""
    return NimLine([*line, *_split(said.get("PASSTHROUGH_ARGS", "")), *behind], notes, "" if form in ("bf16", "fp16") else form)


def _variables(words: Sequence[str], exported: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name without NIM_, value) of a container's variables."""
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        text = word.partition("=")[2] if word.startswith("--env=") else word[2:] if word.startswith("-eNIM_") else word
        if (before in ("-e", "--env") or text is not word) and text.startswith("NIM_"):
            name, equals, value = text.partition("=")
            value = value if equals else exported.get(name, "")
            if name == "NIM_PASSTHROUGH_ARGS":  # a text of several words, which the line may have apart
                more = takewhile(lambda other: not _DOCKERS.fullmatch(other), words[at + 1 :])
                value = " ".join((value, *more))
            yield name.removeprefix("NIM_"), value.strip("'\"")


def _engine_of(found: re.Match[str], profile: re.Match[str] | None, said: Mapping[str, str], notes: list[str]) -> str:
    """The engine: that of the profile, of the image, or what its release takes."""
    if profile is not None:
        return {"tensorrt_llm": "trtllm"}.get(profile["engine"], profile["engine"])
    image = f"{found[2]}:{found[3] or ''}"
    named = next((engine for engine in _ENGINE if engine in image), None)
    if named is not None:
        return named
    old = re.match(r"1(?:\.|$)", found[3] or "") is not None
    engine = "trtllm" if old else "vllm"
    why = "NIM 1 prefers its profiles of TensorRT-LLM" if old else "NIM 2 is built on vLLM"
    by = " its NIM_MODEL_PROFILE is a checksum;" if said.get("MODEL_PROFILE") else ""
    notes.append(f"assumed: {engine} inside the NIM:{by} {why}, and no engine is named (--engine states it)")
    if old:
        notes.append("assumed: weights in 16 bits; NIM 1 takes a profile in fp8 where its image has one (--weights fp8 states it)")
    return engine


def _model_of(found: re.Match[str], said: Mapping[str, str]) -> str:
    """The model that the variables name, else that of the image."""
    stated = said.get("MODEL_PATH") or said.get("MODEL_NAME") or ""
    if stated and not stated.startswith("/"):
        return re.sub(r"^(?:hf|ngc)://(?:nim/)?", "", stated).partition(":")[0]
    return found[2] if not _WITHOUT_MODEL.search(found[2]) else stated or found[2]


def _take_gpus(words: Sequence[str], said: dict[str, str], notes: list[str]) -> None:
    """Tensor parallelism over the GPUs that the container has, where nothing else states it."""
    if said.get("TENSOR_PARALLEL_SIZE"):
        return
    line = " ".join(words)
    count = re.search(r"--gpus[ =]'?\"?(?:count=)?(\d+)\b", line)
    device = re.search(r"--gpus[ =]['\"]*device=([\d,]+)|NVIDIA_VISIBLE_DEVICES=([\d,]+)", line)
    number = int(count[1]) if count else len((device[1] or device[2]).split(",")) if device else 0
    if number:
        said["TENSOR_PARALLEL_SIZE"] = str(number)
        notes.append(f"assumed: tensor parallelism over the container's GPUs ({number}), as no profile states it")


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
