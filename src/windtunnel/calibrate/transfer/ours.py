"""windtunnel's method: tile and wave curves with the new GPU's SMs, cache and bandwidth, limited by its power and special
functions.

The curves are those of a relative of the same architecture, scaled by the laws of `law.py`; without a relative, those fitted on all
measured GPUs together. A measured best matmul caps the rate, if one is known.
"""

from __future__ import annotations

from windtunnel.calibrate.transfer import evaluate
from windtunnel.calibrate.transfer.method import Known, Predicted, nearest
from windtunnel.calibrate.transfer.rows import TransferRows
from windtunnel.compute.transfer.law import sheet
from windtunnel.compute.transfer.moved import attention_for, gemm_for
from windtunnel.spec.machine.cluster import GPU


def ours(kind: str, rows: TransferRows, gpu: GPU, known: Known) -> Predicted:
    """Seconds by a relative of the same architecture, else by the curves shared by all."""
    on = sheet(gpu)
    same = Known([one for one in known.relatives if one.on.architecture == on.architecture and one.has(kind)], known.joint)
    base = nearest(kind, on, same) if same.relatives else None
    source = base.on.id if base is not None else ", ".join(known.joint.fitted_on)
    if kind == "gemm":
        own = None if base is None or base.gemm is None else (base.gemm, base.on)
        return Predicted(evaluate.gemm(gemm_for(gpu, known.joint, own), on, rows), source)
    curves = attention_for(gpu, known.joint, None if base is None else (base.attention, base.on))
    return Predicted(evaluate.attention(curves, on, rows), source)
