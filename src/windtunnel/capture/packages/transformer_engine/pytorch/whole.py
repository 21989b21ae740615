"""Modules of several layers in one, which have no stand-in: others ask whether a module is one."""

from typing import Any

import torch

from windtunnel.capture.fused import refuse


class LayerNormMLP(torch.nn.Module):
    def __init__(self, *_: Any, **__: Any) -> None:
        raise refuse(f"{type(self).__name__} of Transformer Engine")


class MultiheadAttention(LayerNormMLP): ...


class TransformerLayer(LayerNormMLP): ...
