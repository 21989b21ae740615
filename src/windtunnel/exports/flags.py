"""Flags of a program: as a table, changed where a job changed, and as a script that a shell takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

Flags = Mapping[str, tuple[str, ...]]
"""Words of each flag, by its name without dashes."""

ONE_OF = (
    {
        "num-layers-per-virtual-pipeline-stage",
        "num-virtual-stages-per-pipeline-rank",
        "pipeline-model-parallel-layout",
        "decoder-first-pipeline-num-layers",
        "decoder-last-pipeline-num-layers",
        "account-for-embedding-in-pipeline-split",
        "account-for-loss-in-pipeline-split",
    },
    {"recompute-activations", "recompute-granularity"},
    {"fp8-format", "fp4-format", "fp8-hybrid", "fp8-e4m3"},
    {"bf16", "fp16"},
    {"use-distributed-optimizer", "data-parallel-sharding-strategy", "use-torch-fsdp2", "zero-stage"},
    {"moe-token-dispatcher-type", "moe-enable-deepep"},
    {"position-embedding-type", "use-rotary-position-embeddings"},
    {"overlap-p2p-communication", "no-overlap-p2p-communication"},
    {"vocab-size", "padded-vocab-size", "tokenizer-type"},
)
"""Flags of Megatron-LM that say one thing in several ways: where one of them changes, the others go."""


def by_name(flags: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The flags of lines such as `--recompute-modules mlp moe`."""
    words = (line.split(" ") for line in flags)
    return {name.removeprefix("--"): tuple(values) for name, *values in words}


def change_flags(given: Flags, was: Flags, now: Flags) -> dict[str, tuple[str, ...]]:
    """`given`, with every flag in which `now` differs from `was`: changed, added or left out."""
    changed = dict(given)
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) == now.get(name):
            continue
        for group in ONE_OF:
            if name in group:
                for other in group - now.keys():
                    changed.pop(other, None)
        if name in now:
            changed[name] = now[name]
        else:
            changed.pop(name, None)
    return changed


def differences(old: Flags, new: Flags) -> tuple[str, ...]:
    """Lines `- --tp 4` and `+ --tp 8` of the flags in which two tables differ."""
    lines = []
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            lines += [f"- {in_shell(name, old[name])}"] if name in old else []
            lines += [f"+ {in_shell(name, new[name])}"] if name in new else []
    return tuple(lines)


def script(flags: Flags, launch: str) -> str:
    """A script of bash that calls `launch` with the flags."""
    lines = [f"  {in_shell(name, words)}" for name, words in flags.items()]
    return "\n".join(("#!/bin/bash", "ARGS=(", *lines, ")", f'{launch} "${{ARGS[@]}}"')) + "\n"


def in_shell(name: str, words: Iterable[str]) -> str:
    """A flag as a shell takes it; variables stay variables."""
    return " ".join([f"--{name}", *map(_quote_word, words)])


def _quote_word(word: str) -> str:
    if "$" not in word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")
    return f'"{escaped}"'
