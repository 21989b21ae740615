"""Shell completion: names of the catalogue, fields of a job. `windtunnel --install-completion` sets it up."""

from __future__ import annotations


def jobs(incomplete: str) -> list[str]:
    """Jobs, then models of the catalogue."""
    from windtunnel.spec import names

    return [name for name in (*names("jobs"), *names("models")) if name.startswith(incomplete)]


def machines(incomplete: str) -> list[str]:
    """Clusters, then jobs of the catalogue."""
    from windtunnel.spec import names

    return [name for name in (*names("clusters"), *names("jobs")) if name.startswith(incomplete)]


def fidelities(incomplete: str) -> list[str]:
    """The levels of network fidelity."""
    from windtunnel.base.fidelity import FIDELITIES

    return [name for name in FIDELITIES if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Models of the catalogue."""
    from windtunnel.spec import names

    return [name for name in names("models") if name.startswith(incomplete)]


def fields(incomplete: str) -> list[str]:
    """Fields of a job, such as `plan.tp=`."""
    from windtunnel.spec import Job
    from windtunnel.spec.loading.explain import paths

    return [f"{path}=" for path in paths(Job) if path.startswith(incomplete)]
