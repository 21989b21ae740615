"""Relative errors (1 sigma) of transferred constants, from leaving measured GPUs out.

A test without rows: the best published matmul of every GPU, predicted without that figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from windtunnel.calibrate.transfer.fit import FEW
from windtunnel.calibrate.transfer.judge import Result, Without
from windtunnel.compute.kernel_file import available, load
from windtunnel.compute.transfer.law import distance, gemm_held, reach, sheet
from windtunnel.spec import load_gpu
from windtunnel.spec.loading.files import names
from windtunnel.spec.machine import GPU


def errors(results: Sequence[Result], bests: Sequence[Best]) -> Mapping[str, float]:
    """Sigma (68 % quantile of absolute errors, with equal weights of GPUs) by class and nearness of the relative.

    If no pair of one architecture was measured, the value of other pairs is used. Memory-bound classes: the share of bandwidth of
    plain pointwise kernels, each GPU's against the others' mean. `foreign`: best matmuls of other vendors.
    """
    sigmas: dict[str, float] = {}
    for kind in ("gemm", "attention"):
        for side in ("other", "same"):
            some = [
                r.errors
                for r in results
                if r.kind == kind and r.method == "ours" and r.n >= FEW and _is_near(r) == (side == "same")
            ]
            sigmas[f"{kind} {side}"] = _sigma(some) if some else sigmas[f"{kind} other"]
    kernels = [load(name) for name in available()]
    shares = {one.id: float(np.log(one.memory["elementwise"].efficiency)) for one in kernels}
    for side in ("same", "other"):
        misses = [
            shares[one.id] - np.mean([shares[o.id] for o in others])
            for one in kernels
            if (others := [o for o in kernels if o.id != one.id and (o.architecture == one.architecture) == (side == "same")])
        ]
        sigmas[f"memory {side}"] = _sigma([np.array(misses)])
    sigmas["foreign"] = _sigma([np.array([np.log(one.measured / one.ours)]) for one in bests if one.foreign])
    return sigmas


def _is_near(result: Result) -> bool:
    """Whether a prediction rests on one GPU of the same architecture."""
    return "," not in result.source and load_gpu(result.source).architecture == load_gpu(result.gpu).architecture


def _sigma(parts: Sequence[np.ndarray]) -> float:
    """68 % quantile of absolute errors, with each part resampled to the same number of points."""
    points = np.linspace(0.0, 1.0, 201)
    return float(np.quantile(list(chain.from_iterable(np.quantile(np.abs(part), points) for part in parts)), 0.68))


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
