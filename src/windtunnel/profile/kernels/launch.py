"""Cost of a launch: a minimal kernel, enqueued one by one, and as nodes of a replayed CUDA graph.

`host_seconds` of the first is the host's cost of a launch; `seconds` over `launches` of the others is the device's cost of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windtunnel.profile.kernels.case import Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope

NODES = (100, 1, 10, 1000)


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Single launches through two operators, then graphs of 1 to 1000 nodes."""
    yield case("add_one", 1, "eager", scope.rank(more=-1.0))
    yield case("linear_one", 1, "eager", scope.rank(more=-0.9))
    for count in (10, 100):
        yield case("add_one", count, "eager", scope.rank(more=0.5))
    if scope.cuda:
        for at, count in enumerate(NODES):
            yield case("graph_replay", count, "cuda_graph", scope.rank(more=-0.8 + 0.4 * at))


def case(name: str, count: int, mode: str, rank: float) -> KernelCase:
    """`count` launches in one execution; batch is that count too, as it is part of what is measured."""

    def make(bench: Bench) -> Run:
        torch = bench.torch
        x = bench.randn(16, 16, dtype="fp32")
        if name == "linear_one":
            return lambda: torch.mm(x, x)
        if name == "graph_replay":
            return graph_of(bench, lambda: lambda: [x.add_(1.0) for _ in range(count)])
        return lambda: [x.add_(1.0) for _ in range(count)]

    return KernelCase("launch", name, "forward", make, "fp32", mode=mode, batch=count, launches=count, rank=rank, modes=())


def graph_of(bench: Bench, make: Callable[[], Run]) -> Run:
    """The run of `make`, captured as a CUDA graph; each call replays it.

    It is built on the captured stream, because a backward pass runs on the stream of its forward pass.
    """
    torch = bench.torch
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run = make()
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()

    def replay() -> object:
        graph.replay()
        return run  # holds the operands, which the graph reads by address

    return replay
