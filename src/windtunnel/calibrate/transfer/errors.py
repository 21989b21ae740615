"""Relative errors (1 sigma) of transferred constants, from leaving measured GPUs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from windtunnel.calibrate.transfer.best import Best
from windtunnel.calibrate.transfer.fit import FEW
from windtunnel.calibrate.transfer.judge import Result
from windtunnel.compute.kernel_file import available, load
from windtunnel.spec import load_gpu


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
