"""Fusible operations (`--use-transformer-engine-op-fuser`), which have no stand-in."""

from typing import Any

from windtunnel.capture.fused import refuse


class FusibleOperation:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise refuse("fusible operations of Transformer Engine")


class Sequential(FusibleOperation): ...
