"""Transfer from measured GPUs to unmeasured ones: three methods, and their errors when each measured GPU is left out."""

from windtunnel.calibrate.transfer.errors import Best, best_matmuls, errors
from windtunnel.calibrate.transfer.judge import BEST, FOREIGN, METHODS, Background, Result, background, leave_out, pool_results
from windtunnel.calibrate.transfer.method import Known, Method, Predicted, Relative
from windtunnel.calibrate.transfer.rows import TOKENS, MeasuredGpu, TransferRows, case, merge_cases, published_cases
from windtunnel.compute.transfer.joint import JointCurves, Stored

__all__ = [
    "BEST",
    "FOREIGN",
    "METHODS",
    "TOKENS",
    "Background",
    "Best",
    "MeasuredGpu",
    "JointCurves",
    "Known",
    "Method",
    "Predicted",
    "Relative",
    "Result",
    "TransferRows",
    "Stored",
    "background",
    "best_matmuls",
    "case",
    "errors",
    "leave_out",
    "merge_cases",
    "pool_results",
    "published_cases",
]
