"""Sheets of collectives and of flows: bands, measured calls and queues are those of the answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.network.collective_sheet import CollectiveAnswer, collective_sheet
from windtunnel.network.flows.sheet import MOST_QUEUES, flows_sheet
from windtunnel.network.simulate.packet_settings import PacketSettings
from windtunnel.records.measured_calls import MeasuredCall
from windtunnel.sheet.blocks import Curves, Lines, Plot, Sheet, Table


def blocks(sheet: Sheet, title: str) -> tuple[object, ...]:
    return next(section.blocks for section in sheet.sections if section.title == title)


def test_a_band_is_the_error_of_the_prediction() -> None:
    rows = [{"size": 1024.0, "time_us": 10.0, "busbw_GBs": 100.0, "algbw_GBs": 50.0, "relative_error": 0.25, "algorithm": "ring",
             "protocol": "simple", "channels": 8}]  # fmt: skip
    (plot,) = blocks(collective_sheet(CollectiveAnswer(rows, measured=[MeasuredCall(2048.0, 1e-5)])), "Bus bandwidth over size")
    assert isinstance(plot, Plot)
    assert [curve.points for curve in plot.curves] == [((1024.0, 100.0),), ((1024.0, 80.0),), ((1024.0, 125.0),)]
    assert [mark.y for mark in plot.marks] == [100.0, pytest.approx(2.0 * 2048.0 / 1e-5 / 1e9)]  # busbw is twice algbw here


def test_measured_calls_meet_predicted_ones_of_their_size() -> None:
    rows = wt.collective("h100-ib", "all_reduce", 16, "1M,4M")
    took = float(str(rows[0]["time_us"])) * 1e-6
    calls = [MeasuredCall(2.0**20, 2.0 * took), MeasuredCall(2.0**20, took / 1.1), MeasuredCall(2.0**10, 1.0)]
    sheet = collective_sheet(CollectiveAnswer(rows, "all_reduce", 16, measured=calls))
    (table,) = blocks(sheet, "All sizes")
    assert isinstance(table, Table)
    assert [row[-1].value for row in table.rows] == [pytest.approx(0.1), None]  # the fastest call of the size counts
    assert next(figure for figure in sheet.figures if figure.key == "rows.error").value == pytest.approx(0.1)


def test_queues_are_those_of_the_longest() -> None:
    packet = PacketSettings(sample=1e-5, watched=32)
    found = wt.flows("fat_tree:k=4,link=400Gb/s", "incast:senders=15,bytes=1MiB", "packet", packet=packet)
    (drawn,) = blocks(flows_sheet(found), "Queues over time")
    assert isinstance(drawn, Curves) and found.series is not None
    most = sorted((float(queue.max()) for queue in found.series.queue), reverse=True)
    assert len(drawn.curves) == min(MOST_QUEUES, sum(length > 0 for length in most))
    assert [max(y for _, y in curve.points) for curve in drawn.curves] == most[: len(drawn.curves)]
    empty = replace(found, series=replace(found.series, queue=np.zeros_like(found.series.queue)))
    (line,) = blocks(flows_sheet(empty), "Queues over time")
    assert isinstance(line, Lines) and line.lines == ("No packet waited for a link.",)
