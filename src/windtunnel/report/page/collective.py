"""The page of a collective over a network engine: the table of sizes, and the links during the call of the largest size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from windtunnel.network.simulate.traffic import Traffic
from windtunnel.report.page import frame
from windtunnel.report.page.frame import Cell
from windtunnel.report.page.load import load_data, network_part
from windtunnel.report.words import numbers as say

Table = Sequence[Mapping[str, object]]
"""Rows as `windtunnel.collective` returns them."""


def write_collective_html(
    path: str | Path,
    title: str,
    about: Sequence[str],
    row: Mapping[str, object],
    rows: Table,
    traffic: Traffic,
    command: str = "",
) -> None:
    """Write the page; FileError if the path cannot be written. `about`: lines below the title; `row` and `traffic`: the call that
    is drawn, as `watch` of `windtunnel.collective` is given it; `command`: shown in the footer, to reproduce the page."""
    frame.write_page(collective_page(title, about, row, rows, traffic, command), path)


def collective_page(
    title: str, about: Sequence[str], last: Mapping[str, object], rows: Table, traffic: Traffic, command: str = ""
) -> str:
    """The page's text."""
    cards = [
        (f"time of {say.size(_number(last, 'size'))}", say.seconds(_number(last, "time_us") * 1e-6), ""),
        ("bus bandwidth", f"{_number(last, 'busbw_GBs'):.1f} GB/s", ""),
        ("algorithm", f"{last['algorithm']}, {last['protocol']}", ""),
        ("channels", f"{_number(last, 'channels'):.0f}", ""),
    ]
    network = frame.part("section", f"The network during the call of {say.size(_number(last, 'size'))}", network_part(traffic))
    heads = [("size", True), ("time", True), ("algbw GB/s", True), ("busbw GB/s", True), ("algorithm", False), ("protocol", False),
             ("channels", True)]  # fmt: skip
    cells: list[list[Cell]] = [
        [(say.size(_number(r, "size")), _number(r, "size")), (say.seconds(_number(r, "time_us") * 1e-6), _number(r, "time_us")),
         (f"{_number(r, 'algbw_GBs'):.1f}", _number(r, "algbw_GBs")), (f"{_number(r, 'busbw_GBs'):.1f}", _number(r, "busbw_GBs")),
         (str(r["algorithm"]), None), (str(r["protocol"]), None), (f"{_number(r, 'channels'):.0f}", _number(r, "channels"))]
        for r in rows
    ]  # fmt: skip
    sizes = frame.part("section", "All sizes", frame.part("table", "sizes", heads, cells))
    loads = load_data(traffic)
    return frame.page(title, about, cards, network + sizes, loads, command, "load.js" if loads else "")


def _number(row: Mapping[str, object], name: str) -> float:
    return float(str(row[name]))
