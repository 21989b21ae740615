"""Ring attention (Liu et al. 2023, arXiv 2310.01889): keys and values pass from rank to rank while attention runs over local ones.

As in Transformer Engine's AttnFuncWithCPAndKVP2P: forward sends keys and values on while it works on them, and merges the
context of each step by its log-sum-exp. Backward sends keys, values and their gradients, the gradients one step later, and starts
where forward ended, so that gradients end on the rank of their keys. PyTorch's context_parallel (`cp_library = "torch"`) sends
keys of all heads, merges in fp32 with separate kernels and sends gradients in fp32 in separate calls; its all_gather fetches all
keys at once and computes in the same blocks.
"""

from __future__ import annotations

from windtunnel.workload.blocks.core import CoreHeads, kernel, visible
from windtunnel.workload.ops import Axis, Comm, Op, Phase, Stream
from windtunnel.workload.tape import Tape

Rows = tuple[list[Op], list[Op]]
"""Forward and backward rows of one unit; waits are row indices within the unit."""

FP32 = 4.0
EAGER_MERGE = (11.0, 8.0, 7)
"""Reads, writes (16-bit numbers an element) and kernels of PyTorch's _SDPAMerger: cast, difference, product, difference in fp32."""


def parts_of(balance: str) -> int:
    """Chunks of a sequence that each rank has."""
    return 2 if balance == "zigzag" else 1


def seen_by(seq: int, ranks: int, balance: str, window: int | None, document: int | None) -> float:
    """Mean number of keys that a query of the slowest of `ranks` attends to, for causal attention within a document and a
    window."""
    length = document or seq
    chunk = seq // (ranks * parts_of(balance))

    def before(position: int) -> float:
        """Sum over the queries up to `position` of the keys that each attends to."""
        documents, rest = divmod(position, length)
        return documents * length * visible(length, window) + (rest * visible(rest, window) if rest else 0.0)

    sums = [before(end * chunk) - before((end - 1) * chunk) for end in range(1, ranks * parts_of(balance) + 1)]
    if balance == "zigzag":
        return max(first + last for first, last in zip(sums[:ranks], reversed(sums[ranks:]), strict=True)) / (2 * chunk)
    return max(sums) / chunk


def ring(tape: Tape, heads: CoreHeads, ranks: int, axis: Axis, share: int) -> Rows:
    # long: the kernels of a layer in the order in which they run
    """The fused core over `ranks` blocks of keys that travel around `axis`; this rank has the queries of `share` context ranks."""
    runtime = tape.job.runtime
    torch = runtime.cp_library == "torch"
    if torch:  # keys and values are repeated to every head before attention
        heads = heads._replace(groups=heads.queries)
    blocks = _blocks(tape, heads, ranks, share)
    tokens = tape.tokens * share
    size = float(tokens * heads.groups * (heads.dim + heads.value))  # keys and values of one rank, elements
    at_once = tape.job.cp_kind == "all_gather"

    def send(name: str, phase: Phase, moved: float, waits: tuple[int, ...], blocking: bool = False) -> Op:
        return tape.comm(name, phase, Comm.SEND_RECV, axis, moved, Stream.CP, blocking, waits)

    def gather(phase: Phase) -> Op:
        return tape.comm("kv gather", phase, Comm.ALL_GATHER, axis, ranks * size * tape.width, Stream.CP, False, (-1,))

    forward: list[Op] = []
    arrives: tuple[int, ...] = ()  # the call that brings the keys of a step
    for step, (core, _) in enumerate(blocks):
        following: tuple[int, ...] = arrives
        if step < ranks - 1 and not (at_once and step):
            forward.append(
                gather(Phase.FORWARD) if at_once else send("kv send", Phase.FORWARD, size * tape.width, () if step else (-1,))
            )
            following = (len(forward) - 1,)
        forward.append(core._replace(waits=arrives))
        if step:
            forward.append(_merge(tape, tokens * heads.queries * heads.value, torch and runtime.launch == "eager"))
        arrives = following

    backward: list[Op] = []
    arrives, ready = (), (-1,)  # `ready`: gradients that the next call sends
    gradients: tuple[int, ...] = ()
    for step, (_, core) in enumerate(reversed(blocks)):
        following, last = arrives, step == ranks - 1
        if torch:
            if not last and not (at_once and step):
                backward.append(
                    gather(Phase.DGRAD) if at_once else send("kv send", Phase.DGRAD, size * tape.width, () if step else (-1,))
                )
                following = (len(backward) - 1,)
        else:  # keys and values are sent until the last step, their gradients from the second step on
            moved = size * tape.width * ((not last) + (step > 0))
            backward.append(send("kv and gradient send" if step else "kv send", Phase.DGRAD, moved, ready))
            following = (len(backward) - 1,)
            gradients = following if step else ()
        backward.append(core._replace(waits=arrives))
        if step:
            width = FP32 / tape.width if torch else 1.0
            adds = tape.elementwise("kv gradient add", Phase.DGRAD, size, 1.0 + width, width)._replace(waits=gradients)
            backward += [
                tape.elementwise("query gradient add", Phase.DGRAD, float(tokens * heads.queries * heads.dim), 1.0 + width, width),
                adds,
            ]
        ready = (len(backward) - 1,)
        if torch:
            backward.append(send("kv gradient send", Phase.DGRAD, size * FP32, ready, blocking=last))
            gradients = (len(backward) - 1,)
        arrives = following
    return forward, backward


def _blocks(tape: Tape, heads: CoreHeads, ranks: int, share: int) -> list[tuple[Op, Op]]:
    """The kernels of each step: the rank's own block under the causal mask, then those of the ranks before. With balanced chunks
    all queries of the last rank attend to the early chunk of every other rank, and none to the late one."""
    plan = tape.job.plan
    length = (plan.document or plan.seq) // ranks  # a ring splits every document over its ranks
    sequences = tape.tokens * share // length
    earlier = length // parts_of(plan.cp_balance)
    own = kernel(tape, heads, sequences, length, length, visible(length, None))
    other = kernel(tape, heads, sequences, length, earlier, float(earlier))
    return [own, *[other] * (ranks - 1)]


def _merge(tape: Tape, elements: int, eager: bool) -> Op:
    """Merges the context of a step into the total: reads both, writes one; log-sum-exps are small."""
    reads, writes, launches = EAGER_MERGE if eager else (2.0, 1.0, 1)
    return tape.elementwise("context merge", Phase.FORWARD, float(elements), reads, writes, launches)
