"""Activations that leave: blocks whose saved tensors live elsewhere, and when their copies run."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.workload.graph import Block, Tensors


def away(block: Block) -> Block:
    """`block` with what it keeps moved out; its own backward pass has it back on the GPU."""
    tensors = block.tensors
    return replace(block, name=f"offloaded {block.name}", saved=0.0, working=block.working + block.saved, offloaded=block.saved,
                   tensors=Tensors(tensors.weights, tensors.trained, (), (*tensors.kept, *tensors.again)))


def windows(offloaded: int, layers: int) -> tuple[int, ...]:
    """For each of the first `offloaded` of `layers` layers, the layer with whose end its copy must be over, before the next one's
    begins; in backward the layer at whose start it is fetched.

    Copies are spread over all layers, as Transformer Engine does (`cpu_offload.py`, AsyncDoubleBufferGroupOffloadHandler:
    layer_window_map), and have at least the layer after their own; `layers` where there is none left.
    """
    if offloaded == 0:
        return ()
    each, more = divmod(layers, offloaded)
    return tuple(max(each * (i + 1) - 1 + min(i + 1, more), i + 1) for i in range(offloaded))
