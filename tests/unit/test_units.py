"""Quantities: what people write is what is meant, and what means nothing is refused."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.units import parse_bandwidth, parse_flops, parse_size, parse_time, show_size, show_time

FINITE = st.floats(min_value=0, max_value=1e18, allow_nan=False)
POSITIVE = st.floats(min_value=1e-3, max_value=1e18, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80GiB", 80 * 2**30),
        ("25MB", 25e6),
        ("1 kB", 1e3),
        ("1PiB", 2.0**50),
        ("16Gb", 2e9),
        (4096, 4096.0),
        ("1e3", 1000.0),
        ("0B", 0.0),
    ],
)
def test_size(text: object, expected: float) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "owner", "expected"),
    [
        ("200Gb/s per NIC each way", None, 25e9),
        ("400Gb/s", "NIC", 50e9),
        ("400Gbps", "NIC", 50e9),
        ("600GB/s per GPU both ways", None, 300e9),
        ("2.039TB/s", "GPU", 2.039e12),
        ("1PiB/s", "GPU", 2.0**50),
        ("100GB/s per node each way", None, 100e9),
        ("25 GB/s per gpu each way", None, 25e9),
    ],
)
def test_bandwidth(text: str, owner: str | None, expected: float) -> None:
    assert parse_bandwidth(text, owner) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "expected"), [("2us", 2e-6), ("2µs", 2e-6), ("30min", 1800.0), ("1.5 ms", 1.5e-3), (3, 3.0), ("1d", 86400.0)]
)
def test_time(text: object, expected: float) -> None:
    assert parse_time(text) == pytest.approx(expected, rel=1e-15)


def test_flops() -> None:
    assert parse_flops("312TFLOP/s") == 312e12
    assert parse_flops("1.9789e15 FLOP/s") == 1.9789e15


NONSENSE = [
    "",
    "fast",
    "-1GB",
    "80 GiBB",
    "GB",
    "1,5GB",
    "nan",
    "inf",
    "1e999",
    "0x10",
    None,
    [],
    {},
    True,
    float("nan"),
    float("inf"),
    -1,
    10**400,
]


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize("parse", [parse_size, parse_time, parse_flops, parse_bandwidth])
def test_nonsense_is_a_value_error(parse: object, value: object) -> None:
    with pytest.raises(ValueError):
        parse(value)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("300GB/s", None),
        ("300GB/s per GPU", None),
        ("300GB/s each way", None),
        ("400Gb/s per GPU", "NIC"),
        ("400Gb/s per cable", "NIC"),
        ("0Gb/s", "NIC"),
        (5e10, "NIC"),
        ("400Gb", "NIC"),
        ("400G", "NIC"),
    ],
)
def test_bandwidth_without_its_owner_or_unit_is_refused(text: object, owner: str | None) -> None:
    with pytest.raises(ValueError):
        parse_bandwidth(text, owner)


@given(FINITE)
def test_bytes_read_back_exactly(number: float) -> None:
    assert parse_size(f"{number!r}B") == number == parse_size(number)


@given(POSITIVE)
def test_rates_read_back_exactly(number: float) -> None:
    assert parse_bandwidth(f"{number!r}B/s per GPU each way") == number
    assert parse_flops(f"{number!r}FLOP/s") == number


@given(POSITIVE)
def test_both_ways_is_twice_each_way(number: float) -> None:
    assert parse_bandwidth(f"{2 * number!r}B/s per NIC both ways") == number


@given(st.text(max_size=40))
def test_any_text_parses_or_is_a_value_error(text: str) -> None:
    for parse in (parse_size, parse_time, parse_flops, parse_bandwidth):
        with contextlib.suppress(ValueError):
            assert math.isfinite(parse(text))


def test_shown_for_people() -> None:
    assert show_size(1.5 * 2**30) == "1.5 GiB"
    assert show_size(3 * 2**40) == "3 TiB"
    assert show_time(12.3e-3) == "12.3 ms"
    assert show_time(7200) == "2 h"
