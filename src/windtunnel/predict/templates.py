"""Engine templates: a pass of a block, or of a whole virtual stage, as rows with streams, costs and waits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.engine import ProgramBuilder
from windtunnel.predict.category import Category, categories
from windtunnel.predict.costs import Costs
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.workload import Kind, Stream, Workload
from windtunnel.workload.schedules import Pass


class Templates:
    """Makes and remembers templates of one workload. Equal virtual stages share theirs, whatever stage they are on."""

    def __init__(self, workload: Workload, costs: Costs, program: ProgramBuilder) -> None:
        self.workload, self.costs, self.program = workload, costs, program
        ops = workload.ops
        self.category = categories(ops)
        self.stream = ops.stream.astype(np.int32)
        self.is_comm = (ops.kind == Kind.COMM).astype(np.uint8)
        pairs = [(w + (-1, -1))[:2] for w in workload.waits]
        self.waits = np.array(pairs, np.int32).reshape(-1, 2)
        self.known: dict[tuple[object, ...], int] = {}
        self.rows: list[npt.NDArray[np.int64] | None] = []  # by template: rows of the workload, or None for one of our own
        runtime = workload.job.runtime
        self.reduce_width = DTYPE_BYTES[runtime.reduce_dtype]
        self.weight_width = DTYPE_BYTES[runtime.weight_dtype]
        self.gather_width = runtime.compute_width

    def pieces(self, blocks: tuple[tuple[int, int], ...], direction: Pass, opens: bool) -> int:
        """A pass through `blocks` (with repeats) in model order; backward walks them in reverse.

        The framework's host cost of a layer is on each block's first row, and where the piece opens a pass, that of a micro batch.
        """
        key = (blocks, direction, opens)
        if key not in self.known:
            rows: list[range] = []
            for index, times in blocks if direction is Pass.FORWARD else reversed(blocks):
                block = self.workload.blocks[index]
                rows += [block.forward if direction is Pass.FORWARD else block.backward] * times
            host = self.workload.job.runtime.host
            self.known[key] = self._add(rows, host.layer, host.micro_batch if opens else 0.0)
        return self.known[key]

    def optimizer(self, stage: int, after_norm: bool) -> int:
        """Rows of a stage's update, up to the gradient norm or after it."""
        rows = self.workload.optimizer[stage]
        names = self.workload.ops.names
        cut = next(r for r in rows if names[r] == "gradient norm") + 1
        return self._add([range(cut, rows.stop) if after_norm else range(rows.start, cut)], 0.0, 0.0)

    def transfer(self, stream: Stream, seconds: float, category: Category) -> int:
        """A collective among equal ranks: one row on its own stream."""
        host = self.workload.job.runtime.host
        return self._one("transfer", int(stream), seconds, host.launch + host.collective, int(category), True)

    def nothing(self, host: float) -> int:
        """A row that only costs host time."""
        return self._one("nothing", int(Stream.COMPUTE), 0.0, host, int(Category.MEMORY_BOUND), False)

    def _one(self, *row: object) -> int:
        if row not in self.known:
            _, stream, seconds, host, category, is_comm = row
            none = np.full(1, -1, np.int32)
            self.rows.append(None)
            self.known[row] = self.program.add_template(
                stream=np.array([stream], np.int32),
                seconds=np.array([seconds]),
                host=np.array([host]),
                category=np.array([category], np.int32),
                comm=np.array([is_comm], np.uint8),
                wait0=none,
                wait1=none,
            )
        return self.known[row]

    def _add(self, ranges: list[range], block_host: float, pass_host: float) -> int:
        index = np.concatenate([np.arange(r.start, r.stop) for r in ranges])
        starts = np.cumsum([0] + [len(r) for r in ranges[:-1]])
        base = np.repeat(starts, [len(r) for r in ranges]).astype(np.int32)
        waits = self.waits[index]
        waits = np.where(waits >= 0, waits + base[:, None], waits).astype(np.int32)
        host = self.costs.host[index].copy()
        host[starts] += block_host
        host[0] += pass_host
        self.rows.append(index)
        return self.program.add_template(
            stream=self.stream[index],
            seconds=self.costs.seconds[index],
            host=host,
            category=self.category[index],
            comm=self.is_comm[index],
            wait0=waits[:, 0].copy(),
            wait1=waits[:, 1].copy(),
        )
