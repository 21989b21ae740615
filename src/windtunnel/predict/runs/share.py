"""A job beside other traffic on its fabric."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.predict.prediction import Sharing
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec.job import Job


def share(job: Job, beside: Sequence[Job], setting: Setting) -> tuple[Job, Sharing]:
    """The job, with the nodes stated on which it runs, and what it and the others do to each other.

    SpecError for jobs that cannot share a fabric, do not fit on it, or take the same nodes.
    """
    from windtunnel.predict.runs.beside import share_fabric  # imported lazily: slow to import
    from windtunnel.predict.runs.residents import check_beside, residents_of, settle_jobs

    jobs = [job, *beside]
    check_beside(jobs, setting.network)
    settled, tenancy = settle_jobs(jobs)
    residents = residents_of(settled, tenancy, setting)
    return settled[0], share_fabric(residents, setting.network, setting.skip, progress=setting.progress)
