"""The core's scanner reads what the slow reader reads, of any text: ordinary, odd and damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import FileError
from windtunnel.formats.traces.kineto.batches import Around, batches, scan_nothing
from windtunnel.formats.traces.kineto.columns import EventColumns
from windtunnel.formats.traces.kineto.reader import TraceScan

PLAIN = st.one_of(st.integers(-5, 2000), st.floats(0, 1e7, width=32), st.integers(10**15, 10**16).map(lambda n: n + 0.125))
ODD = st.one_of(
    st.integers(-(2**64), 2**64), st.integers(2**53, 2**62), st.just(10**40), st.floats(allow_nan=False), st.booleans(), st.none(),
    st.sampled_from(
        ["3", "-7", " 8", "1.5", "2e3", "007", "1_0", "x", "", "nan", "12345678901234567", "\u00e9", [1], {}, {"a": [None, {}]}]
    ),
)  # fmt: skip
NUMBERS = st.one_of(PLAIN, PLAIN, PLAIN, ODD)
NAMES = st.one_of(
    st.sampled_from(["aten::mm", "gemm", "nccl:all_to_all", "record_param_comms", "thread_name", "[memory]", "ProfilerStep#3"]),
    st.text(max_size=12),
    st.sampled_from(['say "hi"', '": nan', '": -inf]', ": nan", "tab\t", "\u6f22\u5b57", "\U0001f680", "\ud83d"]),
    st.sampled_from([None, 5, True, ["nccl:"]]),
)  # fmt: skip
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("correlation", "External id", "external id", "stream", "device", "bytes", "queued"), NUMBERS),
        **dict.fromkeys(("Sequence number", "Fwd thread id"), NUMBERS),
        **dict.fromkeys(("wait_on_stream", "iteration", "step", "Rank", "Total Allocated", "Device Type"), NUMBERS),
        "Collective name": NAMES, "Input Dims": st.sampled_from([[[4, 8]], [], "[[2]]", None]), "name": NAMES,
        "Input type": st.sampled_from([["float"], [], None]),
        "grid": st.just([96, 1, 1]), "Call stack": NAMES, "warps per SM": st.sampled_from([0.5, "WORD", "WORD-", "WORD+"]),
    },
)  # fmt: skip
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "X", "B", "E", "i", "M", "s", "f", "\u00e4", None, 3])},
    optional={
        "name": NAMES, "cat": st.one_of(st.sampled_from(["kernel", "cpu_op", "Kernel"]), NAMES), "ts": NUMBERS, "dur": NUMBERS,
        "pid": st.one_of(st.integers(0, 2), ODD), "tid": st.one_of(st.integers(0, 2), st.just("stream 7"), ODD),
        "args": st.one_of(ARGUMENTS, ARGUMENTS, ARGUMENTS, st.none(), st.just([1])), "id": NUMBERS,
    },
)  # fmt: skip
WORDS = {'"WORD"': "nan", '"WORD-"': "-Infinity", '"WORD+"': "+inf"}


@dataclass(frozen=True)
class Text:
    """A trace as text, and the chunks that it is read in."""

    data: bytes
    chunk: int

    def chunks(self) -> Iterator[bytes]:
        return (self.data[at : at + self.chunk] for at in range(0, len(self.data), self.chunk))


@st.composite
def texts(draw: st.DrawFn) -> Text:
    parts = []
    for event in draw(st.lists(EVENTS, min_size=1, max_size=12)):
        keys = draw(st.permutations(sorted(event)))
        indent = draw(st.sampled_from([None, None, 1]))
        text = json.dumps({key: event[key] for key in keys}, ensure_ascii=draw(st.booleans()), indent=indent)
        if draw(st.integers(0, 9)) == 0:  # a key twice: the last one counts
            text = text[:-1] + ', "ts": 7, "args": {"stream": 3}}'
        for quoted, word in WORDS.items():
            text = text.replace(quoted, word)
        parts.append(text.encode("utf-8", "surrogatepass"))
    data = b'{"schemaVersion": 1, "traceEvents": [\n' + draw(st.sampled_from([b",", b", ", b" ,\n"])).join(parts) + b'\n], "z": {}}'
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at, cut = draw(st.integers(0, len(data))), draw(st.integers(0, 3))
        data = data[:at] + draw(st.sampled_from([b"", b"\xff", b'"', b"}", b",", b"0", b"\\", b"\x01"])) + data[at + cut :]
    return Text(data, draw(st.sampled_from([150, 700, 10**6])))


def read(text: Text, scanned: bool) -> Any:
    """Everything that a reading leaves behind, or its error."""
    around, columns = Around(), EventColumns()
    scan = TraceScan(columns).take if scanned else scan_nothing
    try:
        for batch in batches("a", text.chunks(), around, columns.layout, scan):
            columns.add(batch)
    except FileError as error:
        return str(error)
    noted = [(row, _plain_fields(args)) for row, args in columns.noted] + columns.noted.numbers.tolist()
    marks = [(*mark[:4], _plain_fields(mark[4])) for mark in columns.marks]
    rest = (dict(columns.phases), list(columns.phases), noted, str(marks), columns.peak, columns.rows, columns.unpaired)
    table = columns.table()
    kept = {name: (one.dtype, one.tobytes()) for name in COLUMNS if (one := getattr(table, name)) is not None}
    return (
        kept,
        table.places,
        table.names,
        table.inputs_texts,
        rest,
        columns.threads,
        {key: len(stack) for key, stack in columns.open.items()},
        asdict(around),
    )


def _plain_fields(args: msgspec.Struct) -> list[str]:
    values = (getattr(args, name) for name in args.__struct_fields__)
    return [str(bytes(value) if isinstance(value, msgspec.Raw) else value) for value in values]


COLUMNS = ("place", "name", "begin", "duration", "correlation", "external", "stream", "device", "sequence", "forward", "inputs",
           "bytes")  # fmt: skip


@examples(300)
@given(texts())
def test_scanned_events_are_the_decoded_ones(text: Text) -> None:
    assert read(text, True) == read(text, False)


def test_the_core_takes_ordinary_pieces_whole() -> None:
    event = {"ph": "X", "cat": "kernel", "name": "gemm \u00e9", "pid": 0, "tid": 7, "ts": 1661203462598738.25, "dur": 2,
             "args": {"stream": 7, "correlation": 5, "External id": 9, "grid": [1, 2], "x": {"y": "\\"}}}  # fmt: skip
    text = ", ".join(json.dumps({**event, "ts": at}) for at in range(50)).encode()
    columns = EventColumns()
    assert TraceScan(columns).take(text, len(text)) == ([], 50)
    table = columns.table()
    assert table.names == ("gemm \u00e9",) and table.places == (("kernel", 0, 7),) and np.array_equal(table.begin, np.arange(50))
    assert set(table.stream) == {7} and set(table.correlation) == {5} and set(table.external) == {9}


@pytest.mark.parametrize("piece", [b"[1]", b'{"ph": "X"', b'{"ph": "X"} {}', b'{"ph": "X",}', b'{"ph": 01}', b"", b'{"args": [1]}'])
def test_a_piece_that_the_core_leaves_leaves_nothing_behind(piece: bytes) -> None:
    columns = EventColumns()
    scan, good = TraceScan(columns), b'{"ph": "X", "name": "kept", "ts": 1, "dur": 1}'
    assert scan.take(b'{"ph": "X", "name": "lost", "pid": 3}, ' + piece, 39 + len(piece)) is None
    assert scan.take(good, len(good)) == ([], 1)
    assert columns.table().names == ("kept",) and columns.table().places == ((None, "None", "None"),)
