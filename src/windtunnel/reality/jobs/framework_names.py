"""The catalogue framework that a table names: spellings, descendants, and substitutes for frameworks outside the catalogue."""

from __future__ import annotations

from windtunnel.reality.rows import publications
from windtunnel.spec import names

DIVIDES_STATE = ("fsdp", "hsdp", "zero3", "zero2")


def framework_named(published: str, sharding: str | None) -> tuple[str, str | None]:
    """(name, None) if the catalogue or a publication file has the name; else (substitute, reason).

    The substitute is FSDP if parameters are sharded, else Megatron, from which most training frameworks descend.
    """
    entries = (*publications.releases(), *names("frameworks"))
    name = published.strip().lower().replace("_", "-")
    if name in entries:
        return name, None
    for entry, others in publications.spellings().items():
        if name in others and entry in entries:
            return entry, f"framework {published} is the catalogue's {entry}"
    stand_in = "fsdp" if sharding in DIVIDES_STATE else "megatron"
    what = f"framework {published!r} is not in the catalogue" if published else "framework not published"
    return stand_in, f"{what}: taken as {stand_in}"
