"""A table of congestion control reads the same with and without the models that say what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windtunnel.base.errors import SpecError
from windtunnel.network import congestion
from windtunnel.network.congestion import CongestionTable, presets
from windtunnel.network.congestion_models import check_table

SIZES = st.sampled_from(["400KB", "1.6MB", 0, 5.5, True, "x", None, -1, float("inf"), "2us", [1]])
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "kmin": SIZES, "kmax": SIZES, "rate": st.sampled_from(["400Gb/s", "25Gb/s per link", 5, None, "40Gb/s per NIC"]),
        "pmax": st.sampled_from([0.2, 1, 0, "0.5", 1.5, "y", True, None]), "source": st.sampled_from(["a", 3, None]),
        "more": st.just(1),
    },
)  # fmt: skip
GOOD = st.sampled_from([{"kmin": "100KB", "kmax": "400KB", "pmax": 0.2}, {"kmin": 1, "kmax": 2, "pmax": "1", "source": "a"}])
TEXTS = st.sampled_from(["dcqcn", "", 5, None])
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "id": TEXTS, "algorithm": TEXTS, "summary": TEXTS, "source": TEXTS, "other": TEXTS,
        "parameters": st.sampled_from([{}, {"g": 0.004}, {"rai": {"value": "40Mb/s"}}, [], None, {3: 4}]),
        "ecn": st.one_of(st.lists(st.one_of(GOOD, ROWS), max_size=3), st.just({}), st.none()),
    },
)  # fmt: skip


def read(table: dict[str, Any]) -> CongestionTable | str:
    try:
        return CongestionTable(**check_table(table, "cc"))
    except SpecError as error:
        return str(error)


@given(TABLES)
@example({"ecn": [{"kmin": 1, "kmax": 2, "pmax": 1}]})
def test_a_plain_table_is_what_the_models_make_of_it(table: dict[str, Any]) -> None:
    try:
        plain: CongestionTable | str = congestion._check_table(table, "cc")
    except SpecError as error:
        plain = str(error)
    assert plain == read(table)


@pytest.mark.parametrize("name", presets())
def test_presets_need_no_models(name: str) -> None:
    table = congestion._table(name, "cc", ())
    assert congestion._read_plain(table) == read(table) != ""
