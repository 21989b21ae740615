"""Python's search for reference cycles, which looks at every object again and again while many are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keep_cycles() -> Iterator[None]:
    """Inside, no cycles are looked for: for work that makes many objects and no cycles among them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
