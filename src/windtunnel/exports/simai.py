"""A job as SimAI's workload: our kernel times, the bytes of its calls, one pipeline stage, micro batches unrolled as AICB does."""

from __future__ import annotations

from collections.abc import Iterable

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.exports.chakra import step_nodes
from windtunnel.exports.exporters import Written
from windtunnel.formats.simulators.simai.workload import MOST_LINES, POLICIES, SimaiLayer, SimaiWorkload, workload_text
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job, check
from windtunnel.workload import Axis, Block, Kind, Phase, Workload, build
from windtunnel.workload.identity import BlockKind

WORDS = {
    Comm.ALL_REDUCE: "ALLREDUCE", Comm.ALL_GATHER: "ALLGATHER", Comm.REDUCE_SCATTER: "REDUCESCATTER", Comm.ALL_TO_ALL: "ALLTOALL",
}  # fmt: skip
SUFFIXES = {Axis.TP: "", Axis.EP: "_EP"}
"""Groups of calls inside layers that the format has."""
STATE = {Axis.DP: "", Axis.SHARD: "", Axis.REPLICA: "", Axis.NEAR: "", Axis.FAR: "", Axis.EXPERT_DP: "_DP_EP",
         Axis.EXPERT_SHARD: "_DP_EP", Axis.EXPERT_REPLICA: "_DP_EP"}  # fmt: skip
"""Groups of weights and gradients."""
UPDATE = 100
"""ns of column 12, which AICB always writes and SimAI does not count."""
NAMES = {"embedding": "embedding_layer", "head": "final_column"}


@dataclass
class PassPart:
    """Computation of a pass of a module up to a call, in seconds, and the call."""

    name: str
    seconds: float = 0.0
    weights: float = 0.0
    call: str = "NONE"
    bytes: int = 0


def export(job: Job, options: dict[str, str]) -> Written:
    """`stage`: the pipeline stage whose lines are written (0)."""
    for name in options:
        if name != "stage":
            raise SpecError("--option", name, "stage=…")
    stage = options.get("stage", "0")
    if not stage.isdigit() or int(stage[:6]) >= job.plan.pp:
        raise SpecError("--option stage", stage, f"a stage from 0 to {job.plan.pp - 1}")
    workload, left = workload_of(job, int(stage))
    assumed = (
        f"times are kernels of stage {stage} alone, without the host and without what runs beside them",
        "vpp is the number of layers of a stage, as AICB writes it; gathers and reductions of weights are one call each",
    )
    return Written({"workload.txt": workload_text(workload)}, left, assumed)


def workload_of(job: Job, stage: int) -> tuple[SimaiWorkload, tuple[str, ...]]:
    """The workload of a stage, and what the format cannot say. SpecError for more lines than are read back."""
    source = build(check(job))
    costs = Setting().price(source)
    left: set[str] = set()
    blocks = [(source.blocks[at], repeats) for chunk in source.stages[stage] for at, repeats in chunk.blocks]
    one = [layer for block, repeats in blocks for layer in lines_of_block(source, costs, block, left) * repeats]
    once = _step_lines(job, source, costs, stage, left)
    if len(once) + len(one) * job.micro_batches > MOST_LINES:
        raise SpecError("plan.global_batch", job.plan.global_batch, f"at most {MOST_LINES:,} lines of all micro batches")
    layers = sum(repeats for block, repeats in blocks if block.key.kind == BlockKind.LAYER)
    keys = {
        "tp": job.plan.tp, "ep": job.plan.ep, "pp": job.plan.pp, "vpp": max(1, layers), "ga": job.micro_batches,
        "gpus": job.cluster.gpus, "pp_bytes": round(source.boundary) if job.plan.pp > 1 else 0,
    }  # fmt: skip
    rows = (*once, *(one * job.micro_batches))
    return SimaiWorkload(POLICIES[0], keys, rows, declared=len(rows)), tuple(sorted(left))


def lines_of_block(workload: Workload, costs: Costs, block: Block, left: set[str]) -> list[SimaiLayer]:
    """Lines of a block: the n-th part of its forward pass on line n, the n-th of its backward pass on the n-th line from below,
    since SimAI goes through the lines from the last to the first."""
    forward = _parts(workload, costs, block.forward, block.name, left)
    backward = _parts(workload, costs, block.backward, block.name, left)
    count = max(len(forward), len(backward), 1)
    empty = PassPart(NAMES.get(block.name, f"{block.name}_layer"))
    out = []
    for at in range(count):
        there = forward[at] if at < len(forward) else empty
        back = backward[count - 1 - at] if count - 1 - at < len(backward) else empty
        name = there.name if at < len(forward) else back.name
        out.append(SimaiLayer(
            name, (_ns(there.seconds), _ns(back.seconds), _ns(there.weights + back.weights)),
            (there.call, back.call, "NONE"), (there.bytes, back.bytes, 0), UPDATE,
        ))  # fmt: skip
    return out


def _parts(workload: Workload, costs: Costs, rows: Iterable[int], name: str, left: set[str]) -> list[PassPart]:
    """A pass cut behind its calls and between modules; a call that the format does not have counts as computation."""
    ops = workload.ops
    out = [PassPart(NAMES.get(name, ""))]
    for row in rows:
        module = NAMES.get(name) or f"{ops.modules[row] or name}_layer"
        if out[-1].call != "NONE" or (out[-1].name and out[-1].name != module):
            out.append(PassPart(module))
        part = out[-1]
        part.name = module
        if ops.kind[row] == Kind.COMM:
            comm, axis = Comm(int(ops.comm[row])), Axis(int(ops.axis[row]))
            if comm in WORDS and axis in SUFFIXES and ops.bytes[row] >= 1:
                if costs.calls.group(axis).ranks > 1:
                    part.call, part.bytes = WORDS[comm] + SUFFIXES[axis], round(float(ops.bytes[row]))
                continue
            if costs.seconds[row] > 0:
                left.add(f"calls of {axis.name.lower()} inside layers, which are written as computation of their length")
        if ops.phase[row] == Phase.WGRAD and ops.kind[row] != Kind.COMM:
            part.weights += float(costs.seconds[row])
        else:
            part.seconds += float(costs.seconds[row])
    return [part for part in out if part.seconds or part.weights or part.call != "NONE"] or out[:1]


def _step_lines(job: Job, workload: Workload, costs: Costs, stage: int, left: set[str]) -> list[SimaiLayer]:
    """Lines of the step: calls of weights and gradients, then the update."""
    sizes: dict[str, float] = {}
    for node in step_nodes(job)[0][stage]:
        if node.kind == "COMM_COLL" and node.axis in STATE and node.call in WORDS:
            word = WORDS[node.call] + STATE[node.axis]
            sizes[word] = sizes.get(word, 0.0) + node.size
        elif node.kind == "COMM_COLL" and node.axis not in SUFFIXES:
            left.add(f"calls of {node.axis.name.lower()} between passes")
    names = {"ALLGATHER": "grad_gather", "REDUCESCATTER": "grad_param_comm", "ALLREDUCE": "grad_reduce"}
    out: list[SimaiLayer] = []
    for word, size in sizes.items():
        name = names.get(word, f"moe_grad_norm{1 + sum(layer.name.startswith('moe') for layer in out)}")
        out.append(SimaiLayer(name, (0, 0, 0), ("NONE", "NONE", word), (0, 0, round(size)), UPDATE))
    update = sum(float(costs.seconds[row]) for row in workload.optimizer[stage] if workload.ops.kind[row] != Kind.COMM)
    return [*out, SimaiLayer("grad_param_compute", (0, _ns(update), 0), ("NONE",) * 3, (0, 0, 0), UPDATE)]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
