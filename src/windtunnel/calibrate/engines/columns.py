"""Rows of imported datasets as columns of an engine's kernel models, with the rows that a fit never sees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.compute.engines.seconds import TILES, Caches, Prompts, Routed, code_of
from windtunnel.records import Dataset
from windtunnel.records.schema import read_shape
from windtunnel.workload.ops import DTYPES

HELD = 5
"""One shape in so many is held out."""

Words = npt.NDArray[np.object_]


@dataclass(frozen=True)
class EngineRows:
    """Columns over rows of one kind of kernel. `what` are the columns that its model takes; `tokens` those of a call (keys for
    caches), by which errors are told apart; `kernel` the launched kernel; `held` rows that no fit sees."""

    what: Mapping[str, Floats]
    seconds: Floats
    tokens: Floats
    kernel: Words
    held: Bools

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: npt.NDArray[Any]) -> EngineRows:
        """The rows of a mask or of indices."""
        what = {name: column[rows] for name, column in self.what.items()}
        return EngineRows(what, self.seconds[rows], self.tokens[rows], self.kernel[rows], self.held[rows])

    def usual_kernel(self) -> EngineRows:
        """The rows of the kernel that most rows launch: an engine's choice; others run where it cannot."""
        names, counts = np.unique(self.kernel.astype(str), return_counts=True)
        return self.take(self.kernel == names[int(np.argmax(counts))]) if len(names) > 1 else self


def held_out(*columns: Floats) -> Bools:
    """[rows] whether the shape of the row is held out: the fifth of the shapes whose words have the lowest hashes."""
    table = np.stack([np.asarray(column, np.int64) for column in columns], axis=1)
    shapes, at = np.unique(table, axis=0, return_inverse=True)
    digests = [hashlib.blake2b(" ".join(map(str, shape)).encode(), digest_size=8).digest() for shape in shapes.tolist()]
    order = np.argsort(np.array([int.from_bytes(one, "big") for one in digests], np.uint64))
    marks = np.zeros(len(shapes), np.bool_)
    marks[order[: len(shapes) // HELD]] = True
    return np.asarray(marks[at.reshape(-1)], np.bool_)


def linear_rows(data: Dataset, form: str) -> EngineRows | None:
    """Products in 16 bits, or linear layers of a recipe; weights' shapes are held out."""
    if form == "bf16":
        part = data.where(level="kernel", op="gemm", name="linear", dtype="bf16")
    else:
        part = data.where(level="submodule", op="linear", shape=f"recipe={form}")
    m, n, k = (_numbers(part, name) for name in "mnk")
    return _rows(part, {"m": m, "n": n, "k": k}, m, held_out(n, k) if len(part) else None)


def pointwise_rows(data: Dataset) -> EngineRows | None:
    """Quantising with a known scale: reads 16 bits a number, writes 8; widths are held out."""
    part = data.where(level="kernel", op="elementwise", name="scale_matrix")
    m, n = _numbers(part, "m"), _numbers(part, "n")
    return _rows(part, {"moved": 3.0 * m * n}, m, held_out(n) if len(part) else None)


def quantising_rows(data: Dataset) -> EngineRows | None:
    """Quantising without a known scale, as a linear layer does it: finding scales, and quantising with them; widths are held out.
    Sizes whose scales take no measurable time are left out."""
    parts = [data.where(level="kernel", op="elementwise", name=name) for name in ("compute_scale", "scale_matrix")]
    (scales, finding), (wholes, quantising) = ((_numbers(p, "m") + 1j * _numbers(p, "n"), _numbers(p, "seconds")) for p in parts)
    sizes, first, second = np.intersect1d(scales, wholes, return_indices=True)
    if not len(sizes):
        return None
    names = np.full(len(sizes), "quantising", np.object_)
    what = {"m": sizes.real, "k": sizes.imag}
    return EngineRows(what, finding[first] + quantising[second], sizes.real, names, held_out(sizes.imag))


def cache_rows(data: Dataset, form: str, latent: bool) -> EngineRows | None:
    """Attention over caches of a format; heads, groups, head size and window are held out."""
    part = _starting(data.where(level="kernel", op="attention", dtype=form), "latent_decode of" if latent else "decode of")
    batch, keys, dim, shared = (_numbers(part, name) for name in ("batch", "n", "k", "heads_per_kv"))
    value = _numbers(part, "v")
    value = np.where(value > 0, value, dim)
    sequences = np.array([float(name.rsplit(" ", 1)[-1]) for name in part.table["name"].to_pylist()])
    window = _numbers(part, "window")
    seen = np.where(window > 0, np.minimum(keys, window), keys)
    heads = batch / np.maximum(sequences, 1.0)
    what = {
        "sequences": sequences, "keys": seen, "groups": np.ones(len(part)) if latent else heads / shared,
        "elements": dim if latent else dim + value, "dim": dim, "io": 2.0 * batch * (dim + value),
        "work": 2.0 * batch * seen * (dim + value),
    }  # fmt: skip
    return _rows(part, what, keys, held_out(heads, shared, dim, window) if len(part) else None)


def caches_of(rows: EngineRows) -> Caches:
    """The columns of `decode_seconds`."""
    return Caches(**rows.what)


def prefill_rows(data: Dataset, form: str, kind: str) -> EngineRows | None:
    """Causal attention over whole prompts; heads, groups, head size and window are held out. `kind`: "prefill", "windowed" (under a
    window that is shorter than the prompt), or "latent prefill"."""
    import pyarrow as pa

    part = _starting(data.where(level="kernel", op="attention", dtype=form), f"{'latent_' * kind.startswith('latent')}prefill of")
    within = (_numbers(part, "window") > 0.0) & (_numbers(part, "window") < _numbers(part, "n"))
    part = Dataset(part.about, part.table.filter(pa.array(within == (kind == "windowed"))))
    batch, m, n, dim, shared = (_numbers(part, name) for name in ("batch", "m", "n", "k", "heads_per_kv"))
    value, window = _numbers(part, "v"), _numbers(part, "window")
    size = np.where(value > 0, (dim + value) / 2.0, dim)
    sequences = np.array([float(name.rsplit(" ", 1)[-1]) for name in part.table["name"].to_pylist()])
    work, moved = _numbers(part, "flops"), _numbers(part, "bytes")
    what = {"batch": batch, "m": m, "n": n, "k": size, "work": work, "moved": moved, "window": window}
    what["own"] = 1.0 / np.maximum(shared, 1.0)
    return _rows(part, what, m, held_out(batch / np.maximum(sequences, 1.0), shared, dim, window) if len(part) else None)


def prompts_of(rows: EngineRows) -> Prompts:
    """The columns of `prefill_seconds`."""
    return Prompts(**rows.what)


def join_experts(releases: Sequence[Dataset], quickest: bool) -> Dataset:
    """Fused experts of several releases, the newest first: of a shape the newest release that has it. `quickest`: of its kernels
    there the quickest, which a tuned server runs."""
    import pyarrow as pa

    tables: list[pa.Table] = []
    known: set[tuple[str, str]] = set()
    for one in releases:
        part = one.where(level="submodule", op="moe", name="moe").table
        if quickest:
            part = part.filter(pa.array([kernel not in SLOWER for kernel in part["kernel"].to_pylist()], pa.bool_()))
            part = part.take(pa.array(np.argsort(_numbers(Dataset(one.about, part), "seconds"), kind="stable"), pa.int64()))
        shapes = list(zip(part["dtype"].to_pylist(), part["shape"].to_pylist(), strict=True))
        first = {shape: row for row, shape in reversed(list(enumerate(shapes)))} if quickest else {}
        kept = [row for row, shape in enumerate(shapes) if shape not in known and first.get(shape, row) == row]
        tables.append(part.take(pa.array(kept, pa.int64())))
        known.update(shapes)
    return Dataset(releases[0].about, pa.concat_tables(tables))


SLOWER = ("deepgemm",)
"""Kernels of experts that no tuned server runs: launch scripts of TensorRT-LLM for DeepSeek in FP8 on Blackwell state its own ones
(`moe_config: backend: TRTLLM`; SemiAnalysisAI/InferenceX, benchmarks/single_node/dsr1_fp8_b200_trt.sh), which its table lacks in
this format. FlashInfer has them, and tables of vLLM and SGLang time them."""


def expert_rows(data: Dataset, form: str) -> EngineRows | None:
    """Fused experts; widths, experts, top-k and the way they are cut are held out."""
    dtype = DTYPES[code_of(form)]
    part = data.where(level="submodule", op="moe", dtype=dtype, name="moe")
    shapes = [read_shape(text) for text in part.table["shape"].to_pylist()]
    mine = np.array([shape.get("recipe", "bf16") == form for shape in shapes], np.bool_)
    if not mine.any():
        return None
    import pyarrow as pa

    part = Dataset(part.about, part.table.filter(pa.array(mine)))
    shapes = [shape for shape, own in zip(shapes, mine, strict=True) if own]

    def column(name: str) -> Floats:
        return np.array([float(shape[name]) for shape in shapes])

    tokens, top_k, experts, ep, tp = (column(name) for name in ("tokens", "top_k", "experts", "ep", "tp"))
    skew = np.array(
        [float(str(shape["distribution"]).rsplit("_", 1)[-1]) if "_" in str(shape["distribution"]) else 0.0 for shape in shapes]
    )
    keys = np.stack([tokens, top_k, experts, ep, skew], axis=1)
    unique, at = np.unique(keys, axis=0, return_inverse=True)
    routed = [route_tokens(int(t), int(k), int(e), int(p), float(s)) for t, k, e, p, s in unique.tolist()]
    at = at.reshape(-1)
    what = {
        "tokens": tokens, "top_k": top_k, "copies": np.array([one[0] for one in routed])[at],
        "active": np.array([one[1] for one in routed])[at], "padded": np.array([one[2] for one in routed])[at],
        "hidden": column("hidden"), "inner": column("expert_ffn") / tp, "matrices": 2.0 + column("gated"),
    }  # fmt: skip
    return _rows(part, what, tokens, held_out(column("hidden"), column("expert_ffn"), experts, top_k, tp, ep))


def routed_of(rows: EngineRows) -> Routed:
    """The columns of `experts_seconds`."""
    return Routed(**rows.what)


DRAWS = 24
"""Draws of an uneven routing over which a rank's load is averaged."""


@lru_cache(maxsize=100_000)
def route_tokens(tokens: int, top_k: int, experts: int, ep: int, skew: float) -> tuple[float, float, tuple[float, ...]]:
    """(copies of tokens, experts that some token chose, rows of whole tiles by tile) on the fullest of `ep` ranks.

    Even routing deals copies in turn. Else loads of experts follow a power law with this exponent, as aiconfigurator's collector
    draws them (collector/helper.py, `_generate_power_law_distribution`): from 1 to 0.8 of the tokens, or from 0.01 to 2 where there
    are no more copies than experts. They are scaled to all copies and rounded, an expert has no more than all tokens, and what is
    missing or too much is dealt to ranks in turn, on each to its emptiest expert, or from its fullest. The row is the fullest
    rank's.
    """
    local = max(experts // ep, 1)
    total = float(tokens * top_k)
    if skew == 0.0:
        copies = max(total / ep, 1.0)
        active = min(float(local), copies)
        return copies, active, tuple(active * np.ceil(copies / active / TILES) * TILES)
    low, high = (1.0, max(0.8 * tokens, 1.0)) if total > experts else (0.01, 2.0)
    draw = np.random.default_rng(experts * 1009 + ep).random((DRAWS, ep, local))
    loads = ((high ** (1.0 - skew) - low ** (1.0 - skew)) * draw + low ** (1.0 - skew)) ** (1.0 / (1.0 - skew))
    loads *= total / loads.sum(axis=(1, 2), keepdims=True)
    counts = np.minimum(np.round(loads), float(tokens))
    missing = total - counts.sum(axis=(1, 2))
    more = np.abs(missing)[:, None] // ep + (np.arange(ep) < np.abs(missing)[:, None] % ep)
    sign = np.where(missing > 0.0, 1.0, -1.0)[:, None, None]
    counts = sign * fill_up(sign * counts, more)
    fullest = counts[np.arange(DRAWS), counts.sum(axis=2).argmax(axis=1)]
    rows = [float((np.ceil(fullest / tile) * tile).sum(axis=1).mean()) for tile in TILES]
    return float(fullest.sum(axis=1).mean()), float((fullest > 0.0).sum(axis=1).mean()), tuple(rows)


def fill_up(counts: Floats, more: Floats) -> Floats:
    """[..., n] `counts` after `more` [...] were dealt one by one, each to the lowest of the last axis; in another order."""
    kept, wide = np.sort(counts, axis=-1), counts.shape[-1]
    sums = np.cumsum(kept, axis=-1)
    raised = (kept * np.arange(1, wide + 1) - sums <= more[..., None]).sum(axis=-1)[..., None]
    level, rest = np.divmod(np.take_along_axis(sums, raised - 1, axis=-1) + more[..., None], raised)
    return np.where(np.arange(wide) < raised, level + (np.arange(wide) < rest), kept)


def _rows(data: Dataset, what: dict[str, Floats], tokens: Floats, held: Bools | None) -> EngineRows | None:
    if held is None or not len(data):
        return None
    kernels = np.array([str(name) for name in data.table["kernel"].to_pylist()], np.object_)
    return EngineRows(what, _numbers(data, "seconds"), tokens, kernels, held)


def _starting(data: Dataset, name: str) -> Dataset:
    """Rows whose name starts so."""
    import pyarrow.compute as pc

    return Dataset(data.about, data.table.filter(pc.starts_with(data.table["name"], name)))


def _numbers(data: Dataset, name: str) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.cast(data.table[name], pa.float64()), 0.0).to_numpy(), np.float64)
