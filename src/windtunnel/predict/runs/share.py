"""A job beside other traffic on its fabric."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.predict.prediction import SaveCost, Sharing
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec.job import Job


def share(
    job: Job, beside: Sequence[Job], background: Sequence[str], setting: Setting
) -> tuple[Job, Sharing | None, SaveCost | None]:
    """The job, with the nodes stated on which it runs; what it and other traffic do to each other; what its saves cost where
    storage is on the fabric. `background`: lists of plain flows.

    SpecError for jobs that cannot share a fabric, do not fit on it, or take the same nodes, and for flows that are none.
    """
    from windtunnel.predict.runs.background import background_of  # imported lazily: slow to import
    from windtunnel.predict.runs.beside import named_apart, share_fabric
    from windtunnel.predict.runs.residents import check_beside, residents_of, settle_jobs
    from windtunnel.predict.runs.saving import save_cost, saves_beside

    if not (beside or background or saves_beside(job, setting.network)):
        return job, None, None
    jobs = [job, *beside]
    check_beside(jobs, setting.network, background)
    settled, tenancy = settle_jobs(jobs)
    residents = residents_of(settled, tenancy, setting)
    first = residents[0]
    names = named_apart([one.name for one in residents] + ["flows"] * len(background))[len(residents) :]
    others = [background_of(text, name, first.on, first.live.book) for text, name in zip(background, names, strict=True)]
    sharing = None
    if beside or background:
        sharing = share_fabric([*residents, *others], setting.network, setting.skip, progress=setting.progress)
    saving = save_cost(settled[0], first, setting) if saves_beside(job, setting.network) else None
    return settled[0], sharing, saving
