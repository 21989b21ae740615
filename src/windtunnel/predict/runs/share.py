"""A job beside other traffic on its fabric."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, PACKET
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
    saves = saves_beside(job, setting.network)
    if not (beside or background or saves):
        return job, None, None
    if background and setting.network == PACKET and setting.threads > 1:
        raise SpecError(
            "--threads",
            setting.threads,
            "1 with --background",
            "Threads simulate ahead by the time from the launch of a call to its first packet, and plain flows send at once.",
        )
    from windtunnel.predict.runs.background import background_of  # imported lazily: slow to import
    from windtunnel.predict.runs.beside import named_apart, share_fabric
    from windtunnel.predict.runs.residents import check_beside, residents_of, settle_jobs
    from windtunnel.predict.runs.saving import save_cost

    jobs = [job, *beside]
    check_beside(jobs, setting.network, background)
    settled, tenancy = settle_jobs(jobs)
    residents = residents_of(settled, tenancy, setting)
    first = residents[0]
    names = named_apart([one.name for one in residents] + ["flows"] * len(background))[len(residents) :]
    others = [background_of(text, name, first.on, first.live.book) for text, name in zip(background, names, strict=True)]
    sharing = None
    if beside or background:
        sharing = share_fabric([*residents, *others], setting.network, setting.skip, None, setting.progress, setting.threads)
    saving = save_cost(settled[0], first, setting) if saves else None
    return settled[0], sharing, saving


def saves_beside(job: Job, network: str) -> bool:
    """Whether saves of the job are flows on its fabric: there are storage servers, and the host writes while training goes on.

    Not with unequal ranks and faults that flap, whose steps are not repeated.
    """
    facts, fabric = job.reliability, job.cluster.fabric
    if network == CLOSED or fabric.storage is None or facts is None or job.unequal is not None:
        return False
    from windtunnel.network.fabrics.faults import CableFlap
    from windtunnel.network.simulate.fabric_faults import parse_any

    if any(isinstance(parse_any(text), CableFlap) for text in fabric.faults):
        return False
    return facts.checkpoint.mode == "background" and facts.checkpoint.flush_over == "training"
