"""From the GPUs that were measured to one that was not: three methods, and what leaving each measured GPU out says of them."""

from windtunnel.compute.transfer.best import Best, best_matmuls
from windtunnel.compute.transfer.errors import errors
from windtunnel.compute.transfer.joint import Joint, Stored
from windtunnel.compute.transfer.judge import BEST, FOREIGN, METHODS, Background, Result, background, leave_out, pooled
from windtunnel.compute.transfer.method import Known, Method, Predicted, Relative
from windtunnel.compute.transfer.published import published
from windtunnel.compute.transfer.rows import TOKENS, Case, Rows, case, merged

__all__ = [
    "BEST",
    "FOREIGN",
    "METHODS",
    "TOKENS",
    "Background",
    "Best",
    "Case",
    "Joint",
    "Known",
    "Method",
    "Predicted",
    "Relative",
    "Result",
    "Rows",
    "Stored",
    "background",
    "best_matmuls",
    "case",
    "errors",
    "leave_out",
    "merged",
    "pooled",
    "published",
]
