"""Muon (Jordan et al. 2024; Liu et al. 2025, arXiv:2502.16982): the momentum of each weight is made orthogonal by Newton-Schulz;
Adam updates the others (embedding, head, norms, biases).

Five iterations on the smaller side s of an s x l matrix in 16 bits, X <- a X + (b A + c A A) X with A = X X': products of 2 s s
l, 2 s s s and 2 s s l FLOPs, which accumulate. If state is sharded, each weight has an owner rank: one all-to-all brings it the
full momentum, one returns the result, and all wait for the rank with the most work (longest first; NVIDIA Megatron-Core
layer_sharded_muon, arXiv:2502.16982 section 2.3). `muon_tp` says how a weight that is sharded over tp is gathered.
"""

from __future__ import annotations

import heapq
from collections import Counter

from windtunnel.workload.identity import Module
from windtunnel.workload.ops import DTYPES, Axis, Comm, Kind, Op, Phase
from windtunnel.workload.optimizers.adam import adam_rows
from windtunnel.workload.optimizers.update import Matrix, ParameterUpdate

ITERATIONS = 5
WIDTH = 2.0
"""Bytes per element in the Newton-Schulz iterations."""


def muon_state(update: ParameterUpdate) -> float:
    """Bytes of one moment for matrices and two for all other parameters."""
    others = update.elements - update.in_matrices
    return update.in_matrices * update.first_moment_width + others * (update.first_moment_width + update.second_moment_width)


def muon_rows(update: ParameterUpdate) -> list[Op]:
    inside = update.in_matrices
    rows = []
    if inside >= 1.0:
        rows += [
            update.moving_kernel(
                "muon momentum", inside, update.grad + 2 * update.first_moment_width + WIDTH, kind=Kind.ELEMENTWISE
            )
        ]
        rows += _orthogonal(update, inside)
        rows += [update.moving_kernel("muon update", inside, 2 * update.main + WIDTH)]
    if update.elements - inside >= 1.0:
        rows += adam_rows(update, "muon's adam", update.elements - inside)
    return rows


def _orthogonal(update: ParameterUpdate, inside: float) -> list[Op]:
    job = update.job
    homes = job.plan.sharding != "none" and job.shard_ranks > 1
    local_weights = slowest(update) if homes else Counter(update.held.matrices)
    size = WIDTH * max(inside, float(sum(m.elements * count for m, count in local_weights.items())))
    rows = [update.call("muon gather", Comm.ALL_TO_ALL, Axis.SHARD, size)] if homes else []
    for matrix, count in local_weights.items():
        rows += _iterations(update, matrix, count)
    return rows + ([update.call("muon scatter", Comm.ALL_TO_ALL, Axis.SHARD, size)] if homes else [])


def _iterations(update: ParameterUpdate, matrix: Matrix, count: int) -> list[Op]:
    """Newton-Schulz of `count` weights of that shape."""
    plan, mode = update.job.plan, update.job.runtime.muon_tp
    ranks = (plan.etp if matrix.expert else plan.tp) if matrix.cut and mode != "blockwise" else 1
    wide, high = (matrix.rows * ranks, matrix.columns) if matrix.cut == "rows" else (matrix.rows, matrix.columns * ranks)
    short, long = min(wide, high), max(wide, high)
    axis = Axis.ETP if matrix.expert else Axis.TP
    rows = []
    if ranks > 1 and mode == "duplicated":
        rows.append(update.call("muon gather over tp", Comm.ALL_GATHER, axis, WIDTH * short * long * count))
    local_long = long // ranks if mode == "distributed" else long
    elements = float(short * local_long * count)
    rows.append(update.moving_kernel("muon norm", elements, WIDTH, count, Kind.REDUCE))
    rows.append(update.moving_kernel("muon scale", elements, 2 * WIDTH, count, Kind.ELEMENTWISE))
    rows.append(_product("muon X X'", short, short, local_long, ITERATIONS * count, 0.0))
    if ranks > 1 and mode == "distributed":
        rows.append(update.call("muon X X' over tp", Comm.ALL_REDUCE, axis, ITERATIONS * 4.0 * short * short * count))
    rows.append(_product("muon A A", short, short, short, ITERATIONS * count, 1.0))
    return [*rows, _product("muon B X", short, local_long, short, ITERATIONS * count, 1.0)]


def _product(name: str, m: int, n: int, k: int, times: int, adds: float) -> Op:
    """`times` products (m,k)x(k,n), one after the other; the result is also read `adds` times."""
    moved = WIDTH * (m * k + k * n + (1.0 + adds) * m * n)
    return Op(
        name,
        Kind.GEMM,
        Phase.OPTIMIZER,
        Module.OPTIMIZER,
        DTYPES.index("bf16"),
        times,
        m,
        n,
        k,
        1,
        2.0 * times * m * n * k,
        times * moved,
        launches=times,
    )


def slowest(update: ParameterUpdate) -> Counter[Matrix]:
    """Weights of the rank with the most work, if weights are assigned by size, largest first, to the rank with the least work."""
    job = update.job
    most: Counter[Matrix] = Counter()
    for expert, ranks in ((False, job.shard_ranks), (True, job.expert_dp)):
        loads: list[tuple[float, int]] = [(0.0, rank) for rank in range(ranks)]
        assigned: list[Counter[Matrix]] = [Counter() for _ in range(ranks)]
        ordered = sorted((m for m in update.held.matrices if m.expert == expert), key=_work, reverse=True)
        for matrix in ordered:
            for _ in range(update.held.matrices[matrix]):
                load, rank = heapq.heappop(loads)
                assigned[rank][matrix] += 1
                heapq.heappush(loads, (load + _work(matrix), rank))
        most += max(assigned, key=lambda weights: sum(_work(m) * count for m, count in weights.items()), default=Counter())
    return most


def _work(matrix: Matrix) -> float:
    short, long = sorted((matrix.rows, matrix.columns))
    return float(short) * short * (2 * long + short)
