"""Adam and momentum SGD: element-wise, in one pass over gradient, weight and moments."""

from __future__ import annotations

from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Op
from windtunnel.workload.optimizers.update import ParameterUpdate


def adam_state(update: ParameterUpdate) -> float:
    """Bytes of both moments."""
    return update.elements * (update.first_moment_width + update.second_moment_width)


def sgd_state(update: ParameterUpdate) -> float:
    """Bytes of the momentum."""
    return update.elements * update.first_moment_width


def adam_rows(update: ParameterUpdate, name: str = "adam", elements: float | None = None) -> list[Op]:
    """Reads the gradient, reads and writes weight and moments; four more fp32 passes if unfused. `elements`: those updated by Adam,
    if another optimizer updates the others."""
    role = Role.ADAM_UPDATE if elements is None else Role.NONE
    return _rows(
        update,
        name,
        update.elements if elements is None else elements,
        update.first_moment_width + update.second_moment_width,
        role,
    )


def sgd_rows(update: ParameterUpdate) -> list[Op]:
    return _rows(update, "sgd", update.elements, update.first_moment_width)


def _rows(update: ParameterUpdate, name: str, elements: float, moments: float, role: Role = Role.NONE) -> list[Op]:
    passes = 1 if update.job.runtime.fused_optimizer else 5
    width = update.grad + 2 * update.main + 2 * moments + 4 * 2 * (passes - 1)
    return [update.moving_kernel(f"{name} update", elements, width, update.launches(elements) * passes)._replace(role=role)]
