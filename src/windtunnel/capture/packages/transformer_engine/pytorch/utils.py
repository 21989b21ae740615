"""Small helpers."""

from typing import Any


def make_weak_ref(tensor: Any) -> Any:
    return tensor
