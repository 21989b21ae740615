"""`torch.cuda` as it is on a GPU of the cluster. Needs the device of `device/` to be loaded."""

from __future__ import annotations

import contextlib
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.base.dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """What a GPU says of itself."""

    name: str
    capability: tuple[int, int]
    """Compute capability, such as (9, 0)."""
    memory: int
    """Bytes."""
    processors: int
    """Streaming multiprocessors."""
    count: int
    """GPUs of the node."""

    @property
    def properties(self) -> types.SimpleNamespace:
        """As `torch.cuda.get_device_properties` returns them. Limits of a block are the same on all GPUs since Volta."""
        major, minor = self.capability
        return types.SimpleNamespace(
            name=self.name, major=major, minor=minor, total_memory=self.memory, multi_processor_count=self.processors,
            warp_size=32, max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=65536,
            shared_memory_per_block=48 << 10, shared_memory_per_block_optin=227 << 10, shared_memory_per_multiprocessor=228 << 10,
            L2_cache_size=50 << 20, is_integrated=0, is_multi_gpu_board=0, gcnArchName="", uuid="GPU-0", pci_bus_id=0,
            pci_device_id=0, pci_domain_id=0, clock_rate=1_980_000, memory_clock_rate=2_619_000, memory_bus_width=5120,
        )  # fmt: skip


_CONSTANTS = {
    True: "is_available is_initialized _is_compiled can_device_access_peer",
    False: "_is_in_bad_fork is_current_stream_capturing is_tf32_supported",
    None: "init _lazy_init empty_cache ipc_collect manual_seed manual_seed_all seed seed_all set_rng_state set_rng_state_all "
    "set_per_process_memory_fraction reset_accumulated_memory_stats reset_accumulated_host_memory_stats caching_allocator_delete "
    "memory_snapshot set_sync_debug_mode",
}  # fmt: skip
"""Functions of `torch.cuda` that always answer the same."""


class DefaultGenerator:
    """The random numbers of a GPU: a state that can be kept and set, and that no operator reads."""

    def __init__(self, torch: Any) -> None:
        self._state = torch.zeros(16, dtype=torch.uint8)
        self._seed = 0

    def get_state(self) -> Any:
        return self._state.clone()

    def set_state(self, state: Any) -> DefaultGenerator:
        self._state = state.clone()
        return self

    def clone_state(self) -> DefaultGenerator:
        return self

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state: Any) -> DefaultGenerator:
        return self

    def manual_seed(self, seed: int) -> DefaultGenerator:
        self._seed = seed
        return self

    def initial_seed(self) -> int:
        return self._seed

    def seed(self) -> int:
        return self._seed


def put_in(torch: Any, device: Any, card: Card) -> None:
    """Puts the stand-ins into `torch.cuda` and what lies beside it. `device`: the module of the recorder."""
    device.set_device_count(card.count)
    ReplayedGraph.device = device
    names = _names(torch, device, card)
    cuda = torch.cuda
    for module in (cuda, cuda.memory, cuda.random, cuda.streams, cuda.graphs):
        for name, value in names.items():
            if module is cuda or hasattr(module, name):
                setattr(module, name, value)
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(cuda.nvtx, name, lambda *_, **__: 0)
    cuda.nccl.version = lambda: (2, 27, 5)
    cuda.default_generators = tuple(DefaultGenerator(torch) for _ in range(card.count))
    torch.version.cuda = "13.0"
    _private(torch, device, card)
    _tensors(torch, device)


def _index(torch: Any, device: Any, given: Any) -> int:
    if given is None:
        return int(device.current_device())
    if isinstance(given, int):
        return given if given >= 0 else int(device.current_device())
    index = torch.device(given).index
    return int(device.current_device()) if index is None else int(index)


def _names(torch: Any, device: Any, card: Card) -> dict[str, Any]:
    """Every name of `torch.cuda` that is replaced."""

    def index_of(given: Any = None) -> int:
        return _index(torch, device, given)

    state = torch.zeros(16, dtype=torch.uint8)
    runtime = types.SimpleNamespace(
        cudaProfilerStart=_constant(0), cudaProfilerStop=_constant(0), cudaHostRegister=_constant(0),
        cudaHostUnregister=_constant(0), cudaMemGetInfo=_constant((card.memory, card.memory)), cudaGetErrorString=_constant(""),
    )  # fmt: skip
    return {
        **{name: _constant(value) for value, names in _CONSTANTS.items() for name in names.split()},
        "is_bf16_supported": _constant(card.capability >= (8, 0)),
        "_lazy_call": lambda function, **_: function(), "initial_seed": _constant(0),
        "get_rng_state": lambda *_, **__: state.clone(), "get_rng_state_all": lambda: [state.clone() for _ in range(card.count)],
        "device_count": _constant(card.count), "current_device": device.current_device,
        "set_device": lambda given: device.set_device(index_of(given)),
        "synchronize": lambda *_, **__: torch.accelerator.synchronize(),
        "get_device_properties": _constant(card.properties), "get_device_capability": _constant(card.capability),
        "get_device_name": _constant(card.name), "get_sync_debug_mode": _constant(0), "utilization": _constant(0),
        "get_arch_list": _constant([f"sm_{card.capability[0]}{card.capability[1]}"]), "get_gencode_flags": _constant(""),
        "cudart": lambda: runtime, "CUDAGraph": ReplayedGraph, "graph": _graph, "graph_pool_handle": _constant((0, 0)),
        **_memory(device, card), **_streams(torch, index_of), **_devices(device, index_of),
    }  # fmt: skip


def _constant(value: Any) -> Callable[..., Any]:
    """A function of its own for each name: torch.compile keeps rules by function."""
    return lambda *_, **__: value


class ReplayedGraph:
    """A CUDA graph. What is captured runs on no stream; each replay records its operators and calls, as one launch."""

    device: Any = None
    """The recorder."""
    capturing = False
    session: Any = None
    """Whoever counts steps: `passes` are forward passes of whole models and updates so far."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._begin, self._graph = 0, -1
        self._passes = (0, 0)

    def _passes_so_far(self) -> tuple[int, int]:
        return self.session.passes if self.session is not None else (0, 0)

    def capture_begin(self, *_: Any, **__: Any) -> None:
        self._begin, self._graph = self.device.count_entries(), -1
        self._passes = self._passes_so_far()
        ReplayedGraph.capturing = True

    def capture_end(self) -> None:
        self._graph = self.device.keep_graph(self._begin)
        ReplayedGraph.capturing = False
        forwards, updates = self._passes_so_far()
        self._passes = forwards - self._passes[0], updates - self._passes[1]

    def replay(self) -> None:
        if self._passes[0] and self.session is not None:
            self.session.begin_pass()
        if self._graph >= 0:
            self.device.replay_graph(self._graph)
        if self._passes[1] and self.session is not None:
            self.session.note_update()

    def reset(self, *_: Any, **__: Any) -> None:
        pass

    enable_debug_mode = debug_dump = instantiate = reset

    def pool(self) -> tuple[int, int]:
        return (0, 0)


@contextlib.contextmanager
def _graph(cuda_graph: Any = None, *_: Any, **__: Any) -> Iterator[None]:
    if cuda_graph is not None:
        cuda_graph.capture_begin()
    yield
    if cuda_graph is not None:
        cuda_graph.capture_end()


def _memory(device: Any, card: Card) -> dict[str, Any]:
    """What the allocator says: bytes of tensors, reserved alike."""

    def live(*_: Any, **__: Any) -> int:
        return int(device.memory()[0])

    def peak(*_: Any, **__: Any) -> int:
        return int(device.memory()[1])

    def stats(*_: Any, **__: Any) -> dict[str, int]:
        numbers: dict[str, int] = defaultdict(int)
        for kind in ("allocated", "reserved", "active", "requested"):
            numbers[f"{kind}_bytes.all.current"], numbers[f"{kind}_bytes.all.peak"] = live(), peak()
        return numbers

    return {
        "memory_allocated": live, "memory_reserved": live, "max_memory_allocated": peak, "max_memory_reserved": peak,
        "memory_stats": stats, "memory_summary": _constant(""),
        "reset_peak_memory_stats": lambda *_, **__: device.reset_peak(),
        "reset_max_memory_allocated": lambda *_, **__: device.reset_peak(),
        "mem_get_info": lambda *_, **__: (card.memory - live(), card.memory),
    }  # fmt: skip


def _streams(torch: Any, index_of: Callable[..., int]) -> dict[str, Any]:
    """Streams and events, which the recorder sees through PyTorch's own."""
    streams: dict[int, Any] = {}
    stream_class = _stream_class(torch, index_of)

    def current_stream(given: Any = None) -> Any:
        index = index_of(given)
        if index not in streams:
            streams[index] = default_stream(index)
        return streams[index]

    def default_stream(given: Any = None) -> Any:
        return stream_class(stream_id=0, device_index=index_of(given), device_type=1)

    def set_stream(stream: Any) -> None:
        if stream is not None:
            streams[stream.device_index] = stream
            torch.accelerator.set_stream(stream)

    class StreamContext:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                self.before = current_stream(self.stream.device_index)
                set_stream(self.stream)

        def __exit__(self, *_: object) -> None:
            if self.stream is not None:
                set_stream(self.before)

    return {
        "Stream": stream_class, "ExternalStream": stream_class, "Event": _event_class(torch, current_stream),
        "StreamContext": StreamContext, "stream": StreamContext, "current_stream": current_stream,
        "default_stream": default_stream, "set_stream": set_stream,
    }  # fmt: skip


def _stream_class(torch: Any, index_of: Callable[..., int]) -> Any:
    class Stream(torch.Stream):  # type: ignore[misc]
        def __new__(cls, device: Any = None, priority: int = 0, **given: Any) -> Any:
            if "stream_id" in given:
                return super().__new__(cls, **given)
            return super().__new__(cls, device=torch.device("cuda", index_of(device)), priority=priority)

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id)

        def query(self) -> bool:
            return True

        def is_capturing(self) -> bool:
            return False

    return Stream


def _event_class(torch: Any, current_stream: Callable[[], Any]) -> Any:
    class Event(torch.Event):  # type: ignore[misc]
        def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> Any:
            return super().__new__(cls, device="cuda", enable_timing=enable_timing, blocking=blocking)

        def record(self, stream: Any = None) -> None:
            super().record(current_stream() if stream is None else stream)

        def wait(self, stream: Any = None) -> None:
            super().wait(current_stream() if stream is None else stream)

        def elapsed_time(self, end: Any) -> float:
            return 1.0

    return Event


def _devices(device: Any, index_of: Callable[..., int]) -> dict[str, Any]:
    """Contexts in which another GPU of the node is the current one."""

    class DeviceContext:
        def __init__(self, given: Any) -> None:
            self.index = index_of(given)

        def __enter__(self) -> None:
            self.before = device.current_device()
            device.set_device(self.index)

        def __exit__(self, *_: object) -> None:
            device.set_device(self.before)

    return {"device": DeviceContext, "device_of": lambda tensor: DeviceContext(tensor.device)}


def _private(torch: Any, device: Any, card: Card) -> None:
    """What a build with CUDA has in `torch._C`, and this one lacks."""
    inside = torch._C
    for name, value in {
        "_cuda_getCurrentRawStream": lambda _=0: 0, "_cuda_getDevice": device.current_device, "_cuda_setDevice": device.set_device,
        "_cuda_exchangeDevice": lambda _: 0, "_cuda_maybeExchangeDevice": lambda _: 0, "_cuda_getDeviceCount": lambda: card.count,
        "_cuda_isCurrentStreamCapturing": lambda: False, "_cuda_emptyCache": lambda: None,
    }.items():  # fmt: skip
        if not hasattr(inside, name):
            setattr(inside, name, value)


def _tensors(torch: Any, device: Any) -> None:
    """Methods of tensors and storages that ask whether PyTorch was built with CUDA."""
    resize, show = torch.UntypedStorage.resize_, torch.Tensor.__repr__

    def resize_(storage: Any, size: int) -> Any:
        if storage.device.type == "cuda":
            device.resize_storage(storage, size)
            return storage
        return resize(storage, size)

    def describe(tensor: Any, **given: Any) -> str:
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cuda":
            return f"tensor(..., size={tuple(tensor.shape)}, dtype={tensor.dtype}, device='{tensor.device}')"
        return str(show(tensor, **given))

    def to_device(tensor: Any, given: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format) -> Any:
        target = torch.device("cuda", _index(torch, device, given))
        return tensor.to(target, non_blocking=non_blocking, memory_format=memory_format)

    torch.UntypedStorage.resize_ = resize_
    torch.Tensor.__repr__ = describe
    torch.Tensor.cuda = to_device
