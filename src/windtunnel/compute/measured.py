"""Look-up of a dataset's kernel rows for the rows of a graph: the same kernel, or two neighbours on one axis.

The same kernel: equal class, pass, number format and shape (`_shape`). For kernels that only move bytes the shape is the number of
bytes. Two neighbours: equal in all but one size (`_line`), with the requested size between theirs and at most `GAP` apart:

    products                         tokens m (k of a weight gradient)
    attention                        sequence length, with the head size and the mask of the row
    norm, softmax, loss, embedding,  bytes
    pointwise, copy, optimizer

Of several rows of the same kernel, the one with the median time is used. fp16 and bf16 are neighbours, never the same kernel. Rows
of another attention library, of another launch mode (`MODES`) or whose status is not ok are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.compute.attention import FULL
from windtunnel.records.schema import OPS, PHASES
from windtunnel.workload.ops import DTYPES, Kind, OpTable, Phase

if TYPE_CHECKING:
    import pyarrow as pa

    from windtunnel.records import Dataset


GAP = 16.0
"""Largest factor between neighbours; beyond it, the curve is better than interpolation."""

NOISE = 0.02
"""Least relative error of a measured kernel: the spread of equal GPUs and repeated runs. Assumed."""

UNSTATED = 0.05
"""Relative error of a row that does not state its spread; assumed."""

MODES = {"eager": ("eager",), "cuda_graph": ("cuda_graph", "eager"), "compile": ("compile",)}
"""Launch mode of a runtime -> modes of rows with the same kernels: a CUDA graph replays the eager ones. Products and attention are
the same kernels in every mode, but where a compiler may fuse them."""

COMPILE = 1
"""Code of compiled rows in `_mode`."""

LIBRARIES = ("fa1", "fa2", "fa3", "cudnn")
"""Attention libraries; a row with another name, or none, counts as the framework's library."""

FUSED_SOFTMAX = ("megatron", "apex", "transformer_engine")

GEMM, ATTENTION = OPS.index("gemm"), OPS.index("attention")
_PRODUCT = np.isin(np.arange(len(OPS)), [GEMM, OPS.index("grouped_gemm")])
_CODE = np.array([OPS.index(kind.name.lower()) if kind.name.lower() in OPS else -1 for kind in Kind], np.int64)
_CODE[Kind.ATTENTION_BACKWARD] = ATTENTION
_CODE[Kind.SCAN] = -1  # a row of the graph is all kernels of a recurrence, one of a dataset is one of them
_BY_SHAPE = np.isin(np.arange(len(OPS)), [OPS.index(name) for name in ("norm", "softmax", "cross_entropy", "embedding")])
_ONE_BY_ONE = np.isin(np.arange(len(OPS)), [OPS.index(name) for name in ("gemm", "grouped_gemm", "elementwise", "copy", "reduce")])
_FORWARD, _DGRAD, _WGRAD, _BACKWARD, _UPDATE = 0, 1, 2, 3, 4
_WAY = {Phase.FORWARD: _FORWARD, Phase.RECOMPUTE: _FORWARD, Phase.DGRAD: _DGRAD, Phase.WGRAD: _WGRAD}
_SAME_TRAFFIC = 1.6
"""Rows of equal shape are the same kernel if their bytes differ by less; more bytes mean a chain of unfused kernels."""


@dataclass(frozen=True)
class KernelShapes:
    """Columns over kernels, of a graph or of a dataset. A row is `unit` equal executions, each with `moved` B and `launches`."""

    op: Int64s
    way: Int64s
    dtype: Int64s
    batch: Int64s
    m: Int64s
    n: Int64s
    k: Int64s
    mask: Int64s
    share: Floats  # of the pairs of queries and keys that are computed
    moved: Floats
    launches: Floats
    unit: Floats

    def take(self, rows: Int64s) -> KernelShapes:
        return KernelShapes(**{name: column[rows] for name, column in vars(self).items()})


@dataclass(frozen=True)
class Matches:
    """For each row of a graph the measured rows `low` and `high` (-1: none; equal if a single row matches), `weight` of `high`,
    and whether it is the `same` kernel."""

    low: Int64s
    high: Int64s
    weight: Floats
    same: Bools


@dataclass
class Measured:
    """The usable kernel rows of `data`, in columns; look-up tables are built on first use and cached.

    `seconds`, `error` (relative, 1 sigma) [R]; `in_run` [R]: timed inside a running module, not in a loop of its own; `kernels`
    [R] their shapes.
    """

    data: Dataset
    name: str = ""
    seconds: Floats = field(init=False, repr=False)
    error: Floats = field(init=False, repr=False)
    in_run: Bools = field(init=False, repr=False)
    kernels: KernelShapes = field(init=False, repr=False)
    _mode: Int64s = field(init=False, repr=False)
    _library: npt.NDArray[np.object_] = field(init=False, repr=False)
    _tables: dict[tuple[str, str | None, bool], tuple[_Table, _Table]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        import pyarrow.compute as pc

        table = self.data.table
        table = table.filter(pc.and_(pc.equal(table["level"], "kernel"), pc.equal(table["status"], "ok")))
        self.name = self.name or self.data.about.source or self.data.about.gpu
        self.seconds = _numbers(table, "seconds")
        spread = _numbers(table, "seconds_std", np.nan) / self.seconds
        self.error = np.where(np.isnan(spread), UNSTATED, np.maximum(spread, NOISE))
        self.in_run = np.asarray(pc.is_valid(table["shape"]).to_numpy(zero_copy_only=False), bool)
        self.kernels = of_dataset(table)
        self._mode = _codes(table, "mode", ("eager", "compile", "cuda_graph"))
        self._library = _codes(table, "library", (*LIBRARIES, *FUSED_SOFTMAX)).astype(object)
        self._tables = {}

    def __len__(self) -> int:
        return len(self.seconds)

    def ops(self, rows: Int64s) -> OpTable:
        """Rows of the dataset as an operator table, for the model."""
        x = self.kernels.take(rows)
        kinds = np.array([Kind[name.upper()] if name.upper() in Kind.__members__ else Kind.GEMM for name in OPS], np.int8)
        kind = kinds[x.op]
        kind[(x.op == ATTENTION) & (x.way == _BACKWARD)] = Kind.ATTENTION_BACKWARD
        phase = np.array([Phase.FORWARD, Phase.DGRAD, Phase.WGRAD, Phase.DGRAD, Phase.OPTIMIZER], np.int8)[x.way]
        pairs = x.batch.astype(float) * x.m * x.n * x.k
        full = np.where(_PRODUCT[x.op], 2.0, np.where(x.way == _BACKWARD, FULL["backward"], FULL["forward"]))
        size, none = len(rows), np.zeros(len(rows), np.int8)
        return OpTable(
            ("",) * size,
            ("",) * size,
            kind,
            phase,
            x.dtype.astype(np.int8),
            x.batch,
            x.m,
            x.n,
            x.k,
            none + np.int64(1),
            full * pairs * x.share,
            x.moved,
            x.launches.astype(np.int64),
            none,
            none,
            none,
            np.zeros(size, np.bool_),
            np.zeros(size, np.bool_),
            module=none,
            role=none,
            further=np.zeros(size, np.bool_),
        )

    def find(self, ops: OpTable, launch: str, library: str | None, fused_softmax: bool) -> Matches:
        """Measured rows for every row of `ops`; `launch`, `library` and `fused_softmax` are what the runtime runs."""
        key = (launch, library, fused_softmax)
        if key not in self._tables:
            self._tables[key] = self._build(*key)
        same, lines = self._tables[key]
        requested = of_graph(ops)
        exact = same.exact(requested)
        low, high, weight = lines.find_neighbours(requested)
        for end in (low, high):  # do not interpolate a chain of unfused kernels between fused ones
            off = (end >= 0) & ~self._alike(requested, end)
            low[off] = high[off] = -1
        low[high < 0] = -1
        hit = (exact >= 0) & self._alike(requested, exact)
        return Matches(np.where(hit, exact, low), np.where(hit, exact, high), np.where(hit, 0.0, weight), hit)

    def _alike(self, requested: KernelShapes, rows: Int64s) -> Bools:
        requested_bytes = self.kernels.take(np.maximum(rows, 0))
        each, measured_bytes = (x.moved / np.maximum(x.m * x.n, 1) for x in (requested, requested_bytes))
        both = (
            _BY_SHAPE[requested.op]
            & (requested.m * requested.n > 0)
            & (requested_bytes.m * requested_bytes.n > 0)
            & (requested_bytes.moved > 0)
        )
        ratio = np.where(both, each / np.where(both, measured_bytes, 1.0), 1.0)
        return np.asarray((ratio < _SAME_TRAFFIC) & (ratio > 1.0 / _SAME_TRAFFIC), bool)

    def _build(self, launch: str, library: str | None, fused_softmax: bool) -> tuple[_Table, _Table]:
        modes = [("eager", "compile", "cuda_graph").index(mode) for mode in MODES[launch]]
        product = _PRODUCT[self.kernels.op] | (self.kernels.op == ATTENTION)
        use = np.isin(self._mode, modes) | (product & (self._mode != COMPILE))
        known = self._library
        if library is not None:
            wanted = LIBRARIES.index(library) if library in LIBRARIES else -1
            use &= (self.kernels.op != ATTENTION) | (known < 0) | (known >= len(LIBRARIES)) | (known == wanted)
        use &= (self.kernels.op != OPS.index("softmax")) | ((known >= len(LIBRARIES)) == fused_softmax)
        rows = np.nonzero(use & (self.kernels.op >= 0) & (self.kernels.dtype >= 0))[0]
        # rows of the runtime's own mode come before those of a substitute mode
        prefer = np.where(self._mode[rows] == modes[0], 0, 1)
        x = self.kernels.take(rows)
        return (
            _Table.of(_shape(x), np.zeros(len(rows)), rows, prefer, self.seconds),
            _Table.of(*_line(x), rows, prefer, self.seconds),
        )


@dataclass(frozen=True)
class _Table:
    """Rows sorted by key, then by place on the axis; one row per place."""

    key: npt.NDArray[np.uint64]
    place: Floats
    row: Int64s
    shape: Int64s  # [rows, columns]: what the key stands for

    @classmethod
    def of(cls, shape: Int64s, place: Floats, rows: Int64s, prefer: Int64s, seconds: Floats) -> _Table:
        keep = np.nonzero(place >= 0.0)[0]
        key = _hash(shape)
        order = keep[np.lexsort((seconds[rows[keep]], prefer[keep], place[keep], key[keep]))]
        first = np.ones(len(order), bool)
        a, b = order[1:], order[:-1]
        first[1:] = (key[a] != key[b]) | (place[a] != place[b])
        begin = np.nonzero(first)[0]
        end = np.append(begin[1:], len(order))
        best = prefer[order] == np.repeat(prefer[order[begin]], end - begin)  # lowest of each place comes first
        count = np.add.reduceat(best, begin) if len(begin) else begin
        middle = order[begin + (count - 1) // 2]
        return cls(key[middle], place[middle], rows[middle], shape[middle])

    def exact(self, wanted: KernelShapes) -> Int64s:
        """The row of equal shape, or -1."""
        if not len(self.key):
            return np.full(len(wanted.op), -1, np.int64)
        shape = _shape(wanted)
        at = np.minimum(np.searchsorted(self.key, _hash(shape)), len(self.key) - 1)
        return np.where((self.shape[at] == shape).all(axis=1), self.row[at], -1)

    def find_neighbours(self, wanted: KernelShapes) -> tuple[Int64s, Int64s, Floats]:
        """Neighbours of each row on its axis, or -1, and its position between the lower and the upper one on a log scale."""
        none = np.full(len(wanted.op), -1, np.int64)
        if not len(self.key):
            return none, none.copy(), np.zeros(len(none))
        shape, place = _line(wanted)
        key = _hash(shape)
        begin, end = np.searchsorted(self.key, key), np.searchsorted(self.key, key, side="right")
        low, high = begin.copy(), end.copy()
        while (open_ := low < high).any():  # bisection of all rows at once
            middle = np.minimum((low + high) // 2, len(self.key) - 1)
            right = open_ & (self.place[middle] < place)
            low = np.where(right, middle + 1, low)
            high = np.where(open_ & ~right, middle, high)
        upper = np.minimum(low, len(self.key) - 1)
        met = (low < end) & (self.place[upper] == place)
        lower = np.where(met, upper, np.maximum(low - 1, 0))
        good = (low < end) & (met | (low > begin)) & (place > 0.0) & (self.shape[upper] == shape).all(axis=1)
        a, b = self.place[lower], self.place[upper]
        good &= b <= GAP * a
        span = np.log(np.where(good & ~met, b / np.where(a > 0, a, 1.0), np.e))
        weight = np.where(good & ~met, np.log(np.where(good, place / np.where(a > 0, a, 1.0), 1.0)) / span, 0.0)
        return np.where(good, self.row[lower], -1), np.where(good, self.row[upper], -1), weight


def of_graph(ops: OpTable) -> KernelShapes:
    """The kernels of a graph's rows; communication and rows that cannot be looked up have op -1."""
    op = _CODE[ops.kind]
    launches = np.where(ops.kind == Kind.GROUPED_GEMM, 1.0, np.maximum(ops.launches, 1))
    product = _PRODUCT[op] & (op >= 0)
    way = np.array([_WAY.get(Phase(code), _UPDATE) for code in range(len(Phase))], np.int64)[ops.phase]
    way = np.where(~product & ((way == _DGRAD) | (way == _WGRAD)), _BACKWARD, way)
    pairs = ops.batch.astype(float) * ops.m * ops.n * ops.k
    share = np.where((ops.flops > 0) & (pairs > 0), ops.flops / np.maximum(pairs, 1.0), 0.0)
    each = ops.batch * np.where(share > 0, share / 2.0, 1.0) / launches  # products in one launch
    rounded = np.round(each)
    batch = np.where(product, rounded, ops.batch).astype(np.int64)
    op = np.where((ops.launches == 0) | (product & (np.abs(each - rounded) > 1e-6 * each)), -1, op)
    full = np.where(way == _BACKWARD, FULL["backward"], FULL["forward"])
    mask = np.where(op == ATTENTION, _mask(share / full, ops.m, ops.n), 0)
    unit = np.where(_ONE_BY_ONE[op], launches, 1.0)
    share = np.where(op == ATTENTION, share / full, 1.0)
    dtype = ops.dtype.astype(np.int64)
    return KernelShapes(op, way, dtype, batch, ops.m, ops.n, ops.k, mask, share, ops.bytes / unit, launches / unit, unit)


def of_dataset(table: pa.Table) -> KernelShapes:
    """The kernels of a dataset's kernel rows, as `of_graph` has them. Sizes that a row leaves out are 0, its batch 1."""
    op = _codes(table, "op", OPS)
    phase = _codes(table, "phase", PHASES)
    way = np.array([_FORWARD, _BACKWARD, _DGRAD, _WGRAD, _FORWARD, _UPDATE], np.int64)[phase]
    way = np.where(~_PRODUCT[op] & ((way == _DGRAD) | (way == _WGRAD)), _BACKWARD, way)
    batch, m, n, k = (_numbers(table, name, gap).astype(np.int64) for name, gap in (("batch", 1), ("m", 0), ("n", 0), ("k", 0)))
    launches = np.maximum(_numbers(table, "launches", 1.0), 1.0)
    pairs = batch.astype(float) * m * n * k
    full = np.where(way == _BACKWARD, FULL["backward"], FULL["forward"])
    flops = _numbers(table, "flops")
    causal, window = _numbers(table, "causal"), _numbers(table, "window")
    visible_keys = np.where(causal > 0, (m + 1.0) / 2.0, n)
    visible_width = np.minimum(np.where(window > 0, window, n), n)
    visible_keys = np.where(
        (window > 0) & (visible_width < n),
        visible_width - visible_width * (visible_width - 1.0) / (2.0 * np.maximum(m, 1)),
        visible_keys,
    )
    stated = np.where((flops > 0) & (pairs > 0), flops / np.maximum(full * pairs, 1.0), visible_keys / np.maximum(n, 1))
    mask = np.where(op == ATTENTION, _mask(stated, m, n), 0)
    unit = np.where(_ONE_BY_ONE[op], launches, 1.0)
    share = np.where(op == ATTENTION, stated, 1.0)
    return KernelShapes(
        op, way, _codes(table, "dtype", DTYPES), batch, m, n, k, mask, share, _numbers(table, "bytes") / unit, launches / unit, unit
    )


def _mask(share: Floats, m: Int64s, n: Int64s) -> Int64s:
    """0: every query sees every key; 1: causal; else 2 + percent of the pairs that are computed."""
    causal = (np.abs(share - (m + 1.0) / (2.0 * np.maximum(m, 1))) < 0.02) | (np.abs(share - 0.5) < 0.02)
    return np.where(share >= 0.95, 0, np.where(causal & (m == n), 1, 2 + np.round(100.0 * share))).astype(np.int64)


def _shape(x: KernelShapes) -> Int64s:
    """[R, 8] the columns in which the same kernel is equal."""
    product = _PRODUCT[x.op] | (x.op == ATTENTION)
    bytes_only = ~_BY_SHAPE[x.op] & ~product
    sized = ~bytes_only & (product | (x.m * x.n > 0))
    moved = np.where(sized, 0, np.where(x.moved > 0, np.round(x.moved), -2 - x.op))
    dtype = np.where(bytes_only, 0, x.dtype)
    return np.stack(
        [
            x.op,
            x.way,
            dtype,
            np.where(product, x.batch, 0),
            np.where(sized, x.m, 0),
            np.where(sized, x.n, 0),
            np.where(product, x.k, 0),
            np.where(product, x.mask, moved),
        ],
        axis=1,
    ).astype(np.int64)


def _line(x: KernelShapes) -> tuple[Int64s, Floats]:
    """[R, 7] the columns in which neighbours are equal, and [R] the size in which they differ; -1 for rows without an axis."""
    product, attention = _PRODUCT[x.op], x.op == ATTENTION
    weight = x.way == _WGRAD
    half = np.where(x.dtype == DTYPES.index("fp16"), DTYPES.index("bf16"), x.dtype)
    first = np.where(product, np.where(weight, x.m, x.n), np.where(attention, x.k, 0))
    second = np.where(product, np.where(weight, x.n, x.k), 0)
    place = np.where(product, np.where(weight, x.k, x.m), np.where(attention, x.n, x.moved)).astype(float)
    place = np.where(attention & (x.m != x.n), -1.0, np.where(place > 0, place, -1.0))
    half, batch = np.where(product | attention, half, 0), np.where(product, x.batch, 0)
    shape = np.stack([x.op, x.way, half, batch, first, second, x.mask], axis=1)
    return shape.astype(np.int64), place


def _hash(shape: Int64s) -> npt.NDArray[np.uint64]:
    """One number for each row of integers (an FNV-like mix); answers are compared in full afterwards."""
    key = np.full(len(shape), 0xCBF29CE484222325, np.uint64)
    for column in shape.T:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


def _numbers(table: pa.Table, name: str, gap: float = 0.0) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.cast(table[name], pa.float64()), gap).to_numpy(), dtype=np.float64)


def _codes(table: pa.Table, name: str, words: tuple[str, ...]) -> Int64s:
    import pyarrow as pa
    import pyarrow.compute as pc

    indices = pc.index_in(table[name], value_set=pa.array(words))
    return np.asarray(pc.fill_null(indices, -1).to_numpy(), dtype=np.int64)
