"""A driver inside of a Slurm job: Slurm requeues the job when the driver has run out of nodes, and it then goes on.

Slurm starts a job again under the same number, on whatever nodes it has by then, if the job allows it (`sbatch --requeue`). It also
does so by itself when it preempts a job or loses the machine on which the driver runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

ANSWER_SECONDS = 60.0


def is_requeued() -> bool:
    """Whether Slurm has started this job before."""
    return os.environ.get("SLURM_RESTART_COUNT", "0").isdigit() and int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0


def requeueable_job() -> str:
    """Number of the Slurm job in which this process runs, if the job may be requeued; else empty."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job or shutil.which("scontrol") is None:
        return ""
    shown = _scontrol("show", "job", job)
    return job if shown is not None and re.search(r"\bRequeue=1\b", shown) else ""


def requeue(job: str) -> bool:
    """Asks Slurm to start the job again; it ends this process soon. Whether Slurm agreed."""
    return _scontrol("requeue", job) is not None


def _scontrol(*words: str) -> str | None:
    """Output of scontrol; None if it fails."""
    try:
        ran = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout if ran.returncode == 0 else None
