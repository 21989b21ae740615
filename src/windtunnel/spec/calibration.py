"""Factors that measured runs put on predicted seconds. `windtunnel calibrate` writes them, `predict --calibration` takes them."""

from __future__ import annotations

from pydantic import Field

from windtunnel.spec.common import Noun, PositiveFloat


class KernelFactors(Noun):
    """Measured seconds over predicted ones, by class of kernels. `elementwise`: all that memory bandwidth bounds and that has no
    class of its own."""

    gemm: PositiveFloat = 1.0
    grouped_gemm: PositiveFloat = 1.0
    attention: PositiveFloat = 1.0
    scan: PositiveFloat = 1.0
    norm: PositiveFloat = 1.0
    loss: PositiveFloat = 1.0
    optimizer: PositiveFloat = 1.0
    elementwise: PositiveFloat = 1.0


class CallFactors(Noun):
    """Measured seconds over predicted ones of communication calls, by parallel axis. `dp`: gradients, parameters and optimizer
    state over all data-parallel axes; `world`: calls of the whole job and between the first and the last stage."""

    tp: PositiveFloat = 1.0
    cp: PositiveFloat = 1.0
    ep: PositiveFloat = 1.0
    dp: PositiveFloat = 1.0
    pp: PositiveFloat = 1.0
    world: PositiveFloat = 1.0


class Calibration(Noun):
    """Factors on kernels, calls (in closed form) and the host's launches. `errors`: standard error of each factor by its path,
    such as kernels.gemm; `source`: the runs that they were fitted to."""

    kernels: KernelFactors = KernelFactors()
    calls: CallFactors = CallFactors()
    host: PositiveFloat = 1.0
    errors: dict[str, float] = Field(default_factory=dict)
    source: str = ""

    def factor(self, path: str) -> float:
        """The factor at a path such as kernels.gemm, calls.dp or host."""
        part, _, name = path.partition(".")
        value: float = getattr(getattr(self, part), name) if name else getattr(self, part)
        return value

    def times(self, path: str, factor: float) -> Calibration:
        """A copy whose factor at a path is multiplied."""
        part, _, name = path.partition(".")
        if not name:
            return self.model_copy(update={part: getattr(self, part) * factor})
        noun = getattr(self, part)
        return self.model_copy(update={part: noun.model_copy(update={name: getattr(noun, name) * factor})})


PATHS = (
    *(f"kernels.{name}" for name in KernelFactors.model_fields),
    *(f"calls.{name}" for name in CallFactors.model_fields),
    "host",
)
"""Paths of all factors."""
