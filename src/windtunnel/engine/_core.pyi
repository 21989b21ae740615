"""Types of the C++ module; see `windtunnel.engine.program.Program` for shapes."""

from collections.abc import Callable
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int32]
_Longs = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float64]

class CoreError(Exception): ...

class Network:
    """What a program's transfers run over; used up by one run."""

class RawTimeline(TypedDict):
    makespan: float
    ops: int
    recalled: int
    outcome: _Ints
    begin: _Floats
    end: _Floats
    transfer_begin: _Floats
    busy: _Floats
    idle: _Floats
    stretch: _Floats
    rank_end: _Floats
    host_end: _Floats
    host_begin: _Floats
    path_rank: _Ints
    path_instance: _Ints
    path_op: _Ints
    path_kind: _Bytes
    path_cause: _Bytes
    path_seconds: _Floats
    record_start: _Floats
    record_end: _Floats

def run(
    *,
    template_start: _Longs,
    op_stream: _Ints,
    op_seconds: _Floats,
    op_host: _Floats,
    op_category: _Ints,
    op_comm: _Bytes,
    op_sync: _Bytes,
    op_wait0: _Ints,
    op_wait1: _Ints,
    rank_start: _Longs,
    template: _Ints,
    times: _Ints,
    flags: _Bytes,
    wait_start: _Longs,
    waits: _Ints,
    rv_stream: _Ints,
    rv_host: _Floats,
    rv_cat_wait: _Ints,
    rv_cat_transfer: _Ints,
    part_start: _Longs,
    part_key: _Longs,
    part_seconds: _Floats,
    part_participants: _Ints,
    record: _Bytes,
    op_group: _Ints,
    scale: _Ints,
    scales: _Floats,
    groups: int,
    op_live: _Ints,
    live_key: int,
    live_calls: int,
    categories: int,
    compute_tax: float,
    host_window: int,
    critical_path: bool,
    follow_key: _Longs,
    follow_next: _Longs,
    taxes: _Floats,
    outcomes: bool,
    grid: float,
    network: Network | None = None,
) -> RawTimeline: ...
def find_periods(
    *,
    rank_start: _Longs,
    template: _Ints,
    times: _Ints,
    flags: _Bytes,
    wait_start: _Longs,
    waits: _Ints,
    rv_stream: _Ints,
    rv_host: _Floats,
    rv_cat_wait: _Ints,
    rv_cat_transfer: _Ints,
    part_start: _Longs,
    part_key: _Longs,
    part_seconds: _Floats,
    part_participants: _Ints,
    passes: _Bytes,
    kind: _Ints,
    number: _Ints,
    step: int,
) -> _Longs: ...
def find_steady(
    *,
    template_start: _Longs,
    op_sync: _Bytes,
    rank_start: _Longs,
    template: _Ints,
    times: _Ints,
    flags: _Bytes,
    periods: _Longs,
    makespan: float,
    begin: _Floats,
    end: _Floats,
    transfer_begin: _Floats,
    host_begin: _Floats,
    outcome: _Ints,
    together: _Longs,
    tolerance: float,
) -> tuple[int, float] | None: ...

class RawTasks(TypedDict):
    start: _Floats
    end: _Floats
    begin: _Floats
    cause: _Longs
    last: _Longs
    done: int

def dag_run(
    *,
    seconds: _Floats,
    tail: _Floats,
    lane: _Ints,
    release: _Ints,
    priority: _Longs,
    dep_start: _Longs,
    deps: _Longs,
    channel: _Ints,
    slot: _Ints,
    key: _Longs,
    lane_ordered: _Bytes,
    lane_width: _Ints,
    channel_kind: _Bytes,
    channel_slots: _Ints,
    model: Callable[..., Any] | None = None,
    network: Network | None = None,
) -> RawTasks: ...
def congestion_controls() -> list[tuple[str, str, list[tuple[str, str, float, float, float, str]], bool]]: ...
def route(
    *,
    graph: dict[str, npt.NDArray[Any]],
    src: _Ints,
    dst: _Ints,
    key: npt.NDArray[np.uint64],
    policy: int,
    nic: int,
    seed: int,
) -> tuple[_Longs, _Ints]: ...
def spread(
    *,
    graph: dict[str, npt.NDArray[Any]],
    src: _Ints,
    dst: _Ints,
    key: npt.NDArray[np.uint64],
    weight: _Floats,
    policy: int,
    nic: int,
    seed: int,
) -> _Floats: ...
def closed_flows(*, graph: dict[str, npt.NDArray[Any]], start: _Longs, links: _Ints, bytes: _Floats, begin: _Floats) -> _Floats: ...
def check_graph(*, graph: dict[str, npt.NDArray[Any]]) -> None: ...

class RawUse(TypedDict):
    link_bytes: _Floats
    link_busy: _Floats
    link_full: _Floats
    bin_width: NotRequired[float]
    bin_row: NotRequired[_Ints]
    bin_bytes: NotRequired[_Floats]

class RawFlows(RawUse):
    start: _Floats
    end: _Floats
    cpu_s: float
    last: float
    events: int
    unknowns: int
    constraints: int
    solves: int
    incremental: int
    full: int
    abandoned: int
    fallbacks: int

def flow_run(
    *,
    capacity: _Floats,
    row_start: _Longs,
    row_links: _Ints,
    demand: _Floats,
    row: _Ints,
    begin: _Floats,
    size: _Floats,
    weight: _Floats,
    bound: _Floats,
    latency: _Floats,
    delay: _Floats,
    dep_start: _Longs,
    deps: _Ints,
    change_time: _Floats,
    change_link: _Ints,
    change_capacity: _Floats,
    tolerance: float,
    memory: float,
    bins: bool,
    progress: Callable[[float], None] | None,
) -> RawFlows: ...
def flow_latency(
    *, row_start: _Longs, row_links: _Ints, wait: _Floats, rate: _Floats, size: _Floats, mtu: float, ack: float
) -> tuple[_Floats, _Floats]: ...

class RawPlans(RawUse):
    starts: _Longs
    total: _Floats
    longest: _Floats
    alone: _Floats
    now: float
    events: int
    unknowns: int
    constraints: int
    active_constraints: int
    solves: int
    incremental: int
    full: int
    abandoned: int
    fallbacks: int

class FlowNetwork(Network):
    def __init__(
        self,
        *,
        capacity: _Floats,
        row_start: _Longs,
        row_links: _Ints,
        demand: _Floats,
        plan_start: _Longs,
        size: _Floats,
        weight: _Floats,
        bound: _Floats,
        latency: _Floats,
        delay: _Floats,
        key: _Longs,
        key_plan: _Ints,
        change_time: _Floats,
        change_link: _Ints,
        change_capacity: _Floats,
        epochs: _Floats,
        tolerance: float,
        bins: bool,
    ) -> None: ...
    def report(self) -> RawPlans: ...

class PacketNetwork(Network):
    def __init__(
        self,
        *,
        graph: dict[str, npt.NDArray[Any]],
        lanes: dict[str, npt.NDArray[Any]],
        plan_start: _Longs,
        key: _Longs,
        key_plan: _Ints,
        options: dict[str, Any],
        faults: dict[str, Any],
        progress: Callable[[float], object] | None = None,
    ) -> None: ...
    @property
    def ahead(self) -> float: ...
    def report(self) -> dict[str, Any]: ...

class ReplayNetwork(Network):
    def __init__(
        self,
        *,
        graph: dict[str, npt.NDArray[Any]],
        lanes: dict[str, npt.NDArray[Any]],
        plan_start: _Longs,
        key: _Longs,
        key_plan: _Ints,
        options: dict[str, Any],
        faults: dict[str, Any],
        tolerance: float,
        progress: Callable[[float], object] | None = None,
    ) -> None: ...
    @property
    def ahead(self) -> float: ...
    def report(self) -> dict[str, Any]: ...

def faults_run(
    *, task: _Floats, kinds: _Floats, seed: int, first: int, count: int, threads: int
) -> dict[str, npt.NDArray[Any]]: ...

class ServePasses: ...

def serve_passes(
    *,
    curves: dict[str, Any],
    kinds: list[dict[str, float]],
    host: dict[str, Any],
    drafts: int,
    draft_layer: dict[str, float] | None,
    small_model: ServePasses | None,
) -> ServePasses: ...
def serve_run(
    *,
    passes: ServePasses,
    price: Callable[[int, int, int, float], float],
    setting: dict[str, Any],
    loads: list[dict[str, Any]],
    counts: _Longs,
) -> list[dict[str, Any]]: ...
def packet_run(
    graph: dict[str, npt.NDArray[Any]],
    lanes: dict[str, npt.NDArray[Any]],
    options: dict[str, Any],
    faults: dict[str, Any],
    progress: Callable[[float], bool | None] | None = None,
) -> dict[str, Any]: ...

_Text = bytes

class RawTurns(TypedDict):
    rows: _Ints
    labels: _Ints
    waits: _Ints
    waits_start: _Longs
    meetings: _Ints
    keys: _Longs
    seconds: _Floats
    meets_start: _Longs
    start: _Longs
    done: _Longs
    moved: _Longs
    base: _Longs

def write_turns(
    *,
    table: _Longs,
    stage: _Longs,
    template: _Longs,
    group: _Longs,
    gather: _Longs,
    send_key: _Longs,
    receive_key: _Longs,
    send_stream: _Longs,
    receive_stream: _Longs,
    seconds: _Floats,
    way: _Longs,
    cat_wait: int,
    cat_transfer: int,
    receive_flags: int,
    senders_wait: bool,
    start: _Longs,
    pass_template: _Longs,
    task: _Longs,
    of_pass: _Longs,
    wait_start: _Longs,
    waits: _Longs,
    last: _Longs,
    gathers: _Longs,
    before: _Longs,
    of_kind: _Longs,
    pair: int,
    send: int,
    receive: int,
) -> RawTurns: ...
def interleave(
    *,
    stream: _Ints,
    seconds: _Floats,
    waits: _Ints,
    other_stream: _Ints,
    other_seconds: _Floats,
    other_waits: _Ints,
    last: int,
) -> tuple[_Ints, _Ints, _Ints]: ...

class RawEvents(TypedDict):
    events: int
    place: _Ints
    name: _Ints
    begin: _Floats
    duration: _Floats
    correlation: _Longs
    external: _Longs
    stream: _Longs
    device: _Longs
    bytes: _Floats
    sequence: _Ints
    forward: _Ints
    inputs: _Ints
    noted: _Longs
    arguments_begin: _Longs
    arguments_end: _Longs
    others_begin: _Longs
    others_end: _Longs
    new_places: list[_Text]
    new_names: list[_Text]
    new_inputs: list[_Text]
    phases: list[_Text]
    counts: _Longs

class TraceScanner:
    """Events of a profiler's trace into columns; see windtunnel.engine.scan."""

    def __init__(self) -> None: ...
    def scan(self, text: bytes, end: int) -> RawEvents | None: ...

def longer_first(events: _Ints, begin: _Floats, seconds: _Floats) -> _Ints: ...
def enclosing(events: _Ints, lanes: _Ints, begin: _Floats, seconds: _Floats) -> _Ints: ...
def innermost(around: _Ints, marked: _Bytes) -> _Ints: ...
