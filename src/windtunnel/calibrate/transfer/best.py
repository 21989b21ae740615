"""A test without rows: the best published matmul of every GPU, predicted without that figure."""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.calibrate.transfer.judge import Without
from windtunnel.compute.transfer.law import distance, gemm_held, reach, sheet
from windtunnel.spec import load_gpu
from windtunnel.spec.loading.catalog import names
from windtunnel.spec.machine.cluster import GPU

TRAINED = ("volta", "ampere", "ada", "hopper", "blackwell")
"""Architectures of the vendor whose GPUs the shared curves are fitted on."""


class Best(NamedTuple):
    """Half-precision FLOP/s: published, by the nearest GPU's share of peak, by the shared curves without this GPU."""

    gpu: str
    measured: float
    naive: float
    ours: float
    foreign: bool


def best_matmuls(without: Without) -> list[Best]:
    """Every catalogue entry with a measured best matmul. Boards of one chip (A100 PCIe 40 and 80 GB) count once, by the first name.

    `naive` uses the share of peak of the best-documented GPU of the nearest other architecture (`distance`).
    """
    gpus = [gpu for gpu in map(load_gpu, names("gpus")) if _best(gpu)]
    distinct = {(gpu.architecture, sheet(gpu).peak, _best(gpu)): gpu for gpu in reversed(gpus)}
    matmuls = []
    for gpu in sorted(distinct.values(), key=lambda gpu: gpu.id):
        on, joint = sheet(gpu), without(frozenset((gpu.id,)))
        others = [one for one in distinct.values() if one.architecture != gpu.architecture]
        near = min(others, key=lambda one: (distance(one.architecture, gpu.architecture), one.id))
        share = _best(near) / sheet(near).peak
        ours = on.peak * reach(gemm_held(joint.gemm, on, joint.energy))
        matmuls.append(Best(gpu.id, _best(gpu), share * on.peak, ours, gpu.architecture not in TRAINED))
    return matmuls


def _best(gpu: GPU) -> float:
    return gpu.achievable.get("bf16", gpu.achievable.get("fp16", 0.0))
