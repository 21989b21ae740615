"""The GPU of a file: stated by the user or by the file, or, as an assumption, a word of its path."""

from __future__ import annotations

import re
from pathlib import Path

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.spec import GPU, load_gpu
from windtunnel.spec.loading.catalog import names
from windtunnel.spec.loading.load import match_gpu

USUAL = {"a100": "a100-sxm-80gb", "h100": "h100-sxm-80gb", "v100": "v100-sxm2-32gb"}
"""The variant that published tables mean by a word without form factor or memory."""


def gpu_named(word: str, path: str = "--gpu") -> GPU:
    """A catalogue name, a driver's name or a TOML file of a GPU. Raises UnknownName, or what a broken file raises."""
    try:
        return load_gpu(word)
    except UnknownName:
        pass
    try:
        return match_gpu(word)
    except UnknownName:
        near = UnknownName(path, word, names("gpus"))
        raise SpecError(
            path,
            word,
            "a GPU of `windtunnel catalog gpus`, or a TOML file that describes one",
            f"{near.hint} For a GPU that is not there, copy an entry, change its figures and give its path.".strip(),
        ) from None


def gpu_of_path(path: Path) -> str | None:
    """Catalogue id of the last word of `path` that begins one, such as `h100` or `b200`; a100 with pcie is the PCIe board."""
    words = re.split(r"[^a-z0-9]+", str(path).lower())
    known = names("gpus")
    for word in reversed(words):
        matches = [name for name in known if name.split("-")[0] == word]
        if matches:
            pcie = [name for name in matches if "pcie-80gb" in name]
            if "pcie" in words and pcie:
                return pcie[0]
            return USUAL.get(word, matches[0])
    return None
