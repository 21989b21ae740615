"""Expert layers whose shapes are measured; the catalogue's models are dense."""

from __future__ import annotations

from typing import NamedTuple


class ExpertShapes(NamedTuple):
    """`ffn`: inner width of one gated expert; `ep`: cuts over expert parallelism, the most used first. Source: config.json of the
    released weights."""

    name: str
    hidden: int
    ffn: int
    experts: int
    top_k: int
    ep: tuple[int, ...]


LAYERS = (
    ExpertShapes("mixtral-8x7b", 4096, 14336, 8, 2, (8, 1)),
    ExpertShapes("deepseek-v3", 7168, 2048, 256, 8, (64, 8)),
    ExpertShapes("qwen3-30b-a3b", 2048, 768, 128, 8, (8, 1)),
    ExpertShapes("mixtral-8x22b", 6144, 16384, 8, 2, (8,)),
    ExpertShapes("deepseek-v2-lite", 2048, 1408, 64, 6, (8, 1)),
)
