"""Fusible operations (`--use-transformer-engine-op-fuser`), which have no stand-in."""

from typing import Any


class FusibleOperation:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("fusible operations of Transformer Engine have no stand-in: capture without them")


class Sequential(FusibleOperation): ...
