"""Schedules whose middle repeats: a step of more micro batches is one of fewer with more of it."""

from __future__ import annotations

from windtunnel.workload.schedules.interleaved import per_round

_OF_ONE = frozenset(("1f1b", "zb-h1", "zb-h2", "zbv", "dualpipev"))
_IN_ROUNDS = frozenset(("interleaved", "interleaved-zb"))


def micro_batches_of_period(name: str, stages: int, chunks: int, micro_batches: int, overlapped: bool = False) -> int | None:
    """Micro batches after which the order of a schedule's passes repeats; None for one in phases, such as GPipe.

    `overlapped`: the order is that of `overlapped_order`.
    """
    if overlapped or name in _IN_ROUNDS:
        return 1 if chunks == 1 else per_round(stages, micro_batches)
    if name in _OF_ONE:
        return 1
    return 2 if name == "dualpipe" else None


def fewer_micro_batches(
    name: str, stages: int, chunks: int, micro_batches: int, periods: int, overlapped: bool = False
) -> int | None:
    """The least number of micro batches whose order repeats its middle `periods` times or more on every stage, and which differs
    from `micro_batches` by whole periods; None if there is no such number below `micro_batches`."""
    period = micro_batches_of_period(name, stages, chunks, micro_batches, overlapped)
    if period is None:
        return None
    begins = 2 * stages + period  # no stage takes more micro batches to begin and to end
    least = begins + periods * period
    fewer = least + (micro_batches - least) % period
    alike = per_round(stages, fewer) == per_round(stages, micro_batches) or period == 1 or name == "dualpipe"
    return fewer if fewer < micro_batches and alike else None
