"""The catalogue GPU that a table names: tables write "b200-sxm-192gb" or "H100-SXM-96GB-HBM2e (Meta)" for one part."""

from __future__ import annotations

import re
from functools import cache

from windtunnel.base.errors import UnknownName
from windtunnel.spec import GPU, load_gpu, match_gpu, names

_WORD = re.compile(r"[a-z]*\d*[a-z]*\d*[a-z]*")
_FAMILIES = ("tpu",)
"""First words of an id that name no part by themselves."""


@cache
def gpu_named(text: str) -> GPU:
    """The GPU whose id or driver name `text` is; else the one whose part number (H200, MI300X, v5p) is a whole word of `text`.

    Of several with that part number, the one with most words of its id in `text`. Raises UnknownName if none or several remain:
    H20 is never H200, and "H100" without more may be any of four.
    """
    try:
        return match_gpu(text)
    except UnknownName:
        words = _words(text)
        shared = {name: len(words & _words(name)) for name in names("gpus") if _part(name) in words}
        best = [name for name, count in shared.items() if count == max(shared.values())]
        if len(best) != 1:
            raise UnknownName("gpu", text, best or names("gpus")) from None
        return load_gpu(best[0])


def _part(name: str) -> str:
    """The word of a catalogue id that is the part's number."""
    words = name.split("-")
    return words[1] if words[0] in _FAMILIES else words[0]


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(text.lower()) if word)
