"""How batches reach the GPUs: who reads, who prepares, and what that may overlap."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.base.units import NodeBandwidth, Seconds
from windtunnel.spec.common import Flag, NonNegativeFloat, Noun, PositiveInt


class Data(Noun):
    """The input pipeline of one node.

    Defaults are those of tokenised text under Megatron-LM and PyTorch's DataLoader: a few kilobytes and tens of microseconds a
    sequence (assumed), which no step waits for.
    """

    reader: Literal["gpu", "tp_rank", "node"] = Field(
        "tp_rank", description="who reads: every GPU for itself, one of each tensor-parallel group, one for the node"
    )
    workers: PositiveInt = Field(2, description="processes of each reader that prepare sequences (PyTorch's num_workers)")
    prefetch: PositiveInt = Field(2, description="micro batches that each worker has ready (PyTorch's prefetch_factor)")
    sample: Seconds = Field(50e-6, description="a worker's time for one sequence: index, slice, decode, collate")
    sample_cv: NonNegativeFloat = Field(0.5, le=100, description="its standard deviation over its mean: the slow tail")
    bytes_per_token: NonNegativeFloat = Field(4.0, description="bytes read for each token; images and video: thousands")
    storage: NodeBandwidth = Field(2e9, description="bytes a second that a node reads")
    overlap: Literal["none", "gradient_sync", "step"] = Field(
        "step", description="a batch is prepared before its step, while gradients of the one before are combined, or all the time"
    )
    read_back: Flag = Field(
        False, description="the host waits for the device before each micro batch is shared out (Megatron-LM's broadcast_data)"
    )
