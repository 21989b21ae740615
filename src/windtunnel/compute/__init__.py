"""Device seconds of operators: tile/wave model of matrix products, fused attention, and kernels that move bytes."""

from windtunnel.compute.curves import PROVENANCES, Provenance
from windtunnel.compute.describe import describe
from windtunnel.compute.estimate import Estimate, estimate
from windtunnel.compute.measured import Measured
from windtunnel.compute.modules import Modules, in_modules
from windtunnel.compute.profile import Profile
from windtunnel.compute.training import Factors, TrainingFactor

__all__ = [
    "PROVENANCES",
    "Estimate",
    "Factors",
    "Measured",
    "Modules",
    "Profile",
    "Provenance",
    "TrainingFactor",
    "describe",
    "estimate",
    "in_modules",
]
