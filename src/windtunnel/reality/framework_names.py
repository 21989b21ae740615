"""Which catalogue framework a table means: spellings, descendants, and what stands in for one that the catalogue lacks."""

from __future__ import annotations

from windtunnel.spec import names

SPELLINGS = {
    "megatron": ("megatron-lm", "mcore", "primus", "pai-megatron", "megatron-llm"),
    "megatron-deepspeed": ("bigscience", "gpt-neox", "neox"),
    "nemo": ("megatron-bridge", "nemo-megatron", "nemo framework", "bionemo"),
    "deepspeed": ("zero", "ds", "deepspeed-zero", "accelerate-deepspeed"),
    "fsdp": (
        "llm-foundry",
        "composer",
        "mosaicml",
        "pytorch-fsdp",
        "pytorch fsdp",
        "fairscale",
        "accelerate",
        "huggingface",
        "transformers",
        "pytorch",
        "torchtune",
        "fms-fsdp",
    ),
    "torchtitan": ("fsdp2", "pytorch-fsdp2", "titan"),
    "maxtext": ("jax", "axlearn", "paxml", "pax", "levanter", "t5x"),
    "hai-llm": ("hai", "deepseek"),
}
"""Catalogue entry (or `software.RELEASES` key): other names that tables use for it, or for what descends from it."""

DIVIDES_STATE = ("fsdp", "hsdp", "zero3", "zero2")


def framework_named(said: str, sharding: str | None, known: tuple[str, ...]) -> tuple[str, str | None]:
    """(name, None) where `known` or the catalogue has `said` or lists it as a spelling; else (what stands in for it, why).

    Sharded parameters stand for FSDP, anything else for Megatron, from which most training frameworks descend.
    """
    name = said.strip().lower().replace("_", "-")
    if name in (*known, *names("frameworks")):
        return name, None
    for entry, others in SPELLINGS.items():
        if name in others and entry in (*known, *names("frameworks")):
            return entry, f"framework {said} is the catalogue's {entry}"
    stand_in = "fsdp" if sharding in DIVIDES_STATE else "megatron"
    what = f"framework {said!r} is not in the catalogue" if said else "framework not published"
    return stand_in, f"{what}: taken as {stand_in}"
