"""The input pipeline: readers, workers, and what batch preparation may overlap."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.base.quantities import NodeBandwidth, Seconds
from windtunnel.spec.common import Flag, NonNegativeFloat, Noun, PositiveInt


class Data(Noun):
    """The input pipeline of one node.

    Defaults are those of tokenised text under Megatron-LM and PyTorch's DataLoader: a few kilobytes and tens of microseconds a
    sequence (assumed), which no step waits for.
    """

    reader: Literal["gpu", "tp_rank", "node"] = Field(
        "tp_rank", description="which ranks read data: every GPU, one rank of each tensor-parallel group, one per node"
    )
    workers: PositiveInt = Field(2, description="worker processes of each reading rank (PyTorch's num_workers)")
    prefetch: PositiveInt = Field(2, description="micro batches that each worker keeps ready (PyTorch's prefetch_factor)")
    sample: Seconds = Field(50e-6, description="worker time per sequence: index, slice, decode, collate")
    sample_cv: NonNegativeFloat = Field(0.5, le=100, description="coefficient of variation of that time (its slow tail)")
    bytes_per_token: NonNegativeFloat = Field(4.0, description="bytes read per token; images and video: thousands")
    storage: NodeBandwidth = Field(2e9, description="read bandwidth of a node from storage")
    overlap: Literal["none", "gradient_sync", "step"] = Field(
        "step",
        description="when batches are prepared: before the step, while gradients of the previous step are reduced, or at any time",
    )
    read_back: Flag = Field(
        False, description="the host waits for the device before each micro batch is scattered (Megatron-LM's broadcast_data)"
    )
