"""Classes of kernels by their names, from the rows of kernel_classes.toml; the first match counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from windtunnel.base.files import table_beside

OTHER = "other"


@dataclass(frozen=True)
class KernelClass:
    """A class, the library of the pattern, and what the kernel's name holds (in lower case, without its function arguments)."""

    name: str
    library: str
    pattern: re.Pattern[str]


CLASSES = tuple(KernelClass(name, library, re.compile(pattern)) for name, library, pattern in table_beside(__file__)["classes"])


@lru_cache(maxsize=65536)
def class_of(name: str) -> str:
    """The class of a kernel that computes. Template arguments are looked at last, since they name functors of other classes."""
    plain = re.split(r"\(", name.replace("(anonymous namespace)", ""), maxsplit=1)[0].lower()
    outer = re.split(r"<", plain, maxsplit=1)[0]
    for text in (outer, plain):
        for row in CLASSES:
            if row.pattern.search(text):
                return row.name
    return OTHER
