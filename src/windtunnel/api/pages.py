"""Answers as self-contained pages, as `--html` of their commands writes them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import SpecError

if TYPE_CHECKING:
    from windtunnel.sheet.blocks import Sheet

SHEETS = {
    "api.answer.Answer": "api.prediction_sheet:prediction_sheet",
    "predict.prediction.Prediction": "api.prediction_sheet:prediction_sheet",
    "api.comparison.Comparison": "api.compare_sheet:compare_sheet",
    "api.memory.MemoryReport": "api.memory:memory_sheet",
    "search.budget.planner.Planned": "search.budget.sheet:plan_sheet",
    "search.result.SearchResult": "search.sheet:search_sheet",
    "search.design.DesignResult": "search.design_sheet:design_sheet",
    "search.levers.sensitivity.Sensitivity": "search.levers.sensitivity_sheet:sensitivity_sheet",
    "serving.answer.Served": "serving.sheet:server_sheet",
    "serving.calibrated.CalibratedServer": "serving.calibrated_sheet:calibrated_sheet",
    "serving.search.ServeFront": "serving.front_sheet:front_sheet",
    "serving.replicas.answer.FleetServed": "serving.replicas.sheet:fleet_sheet",
    "network.flows.run.FlowsResult": "network.flows.sheet:flows_sheet",
    "goodput.measured.Twin": "goodput.incidents_sheet:twin_sheet",
    "runs.fleet.comparison.FleetComparison": "runs.fleet.comparison_sheet:comparison_sheet",
    "fleet.api.JudgedRun": "runs.fleet.show_sheet:watched_sheet",
    "goodput.answer.Goodput": "goodput.sheet:run_sheet",
    "runs.calibrate.Calibrated": "runs.calibrate:calibration_sheet",
    "runs.comparison.RunComparison": "runs.comparison_sheet:comparison_sheet",
    "reality.score.report.Report": "reality.page.sheet:validation_sheet",
    "replay.result.ReplayResult": "replay.sheet:replay_sheet",
    "runs.report.RunReport": "runs.report_sheet:run_sheet",
    "rl.answer.RLStep": "rl.sheet:step_sheet",
}
"""Class of an answer, by its module below `windtunnel` -> the function that says what it shows."""


def sheet_of(answer: Any, title: str = "") -> Sheet:
    """What an answer shows, as data: figures, sentences, tables, charts. `title`: the fabric of flows, which they do not know.

    Raises SpecError for an answer that has no sheet.
    """
    kind = _kind_of(answer)
    if kind not in SHEETS:
        raise SpecError("answer", kind, "an answer of a verb that has a sheet", "wt.as_dict(answer) has any answer as data.")
    module, function = SHEETS[kind].split(":")
    named = (title,) if kind == "network.flows.run.FlowsResult" else ()
    sheet: Sheet = getattr(import_module(f"windtunnel.{module}"), function)(answer, *named)
    return sheet


def write_html(answer: Any, path: str | Path, *, title: str = "", command: str = "") -> None:
    """Write the page of an answer: one file without a request to anywhere, light and dark, with CSV of each table.

    `answer`: of `predict`, `plan`, `goodput`, `search`, `design`, `sensitivity`, `compare`, `collective`, `flows`, `validate`,
    `runs.show`, `fleet.judge_run`, `serve_predict` (with `record=True`) or `rl_predict`, or what `whatif` returns. `title`: of a
    collective, or the fabric of flows, which their answers do not know; `command`: shown in the footer, to reproduce the page.
    Raises SpecError for another answer, and FileError if the path does not end in .html or cannot be written.
    """
    from windtunnel.draw.page.frame import check_page, write_page

    check_page(path, "path")
    write_page(_page_of(answer, title, command), path, "path")


def _page_of(answer: Any, title: str, command: str) -> str:
    kind = _kind_of(answer)
    if kind in SHEETS:
        from windtunnel.draw.page.sheet import page as sheet_page

        return sheet_page(sheet_of(answer, title), command)
    several = answer if isinstance(answer, (list, tuple)) else ()
    if several and all(_kind_of(one) == "runs.whatif.WhatIf" for one in several):
        from windtunnel.draw.page.sheet import page as sheet_page
        from windtunnel.runs.whatif_sheet import whatif_sheet

        return sheet_page(whatif_sheet(several), command)
    if several and all(isinstance(one, dict) and "busbw_GBs" in one for one in several):
        from windtunnel.draw.page.sheet import page as sheet_page
        from windtunnel.network.collective_sheet import CollectiveAnswer, collective_sheet

        return sheet_page(collective_sheet(CollectiveAnswer(several), title), command)
    raise SpecError("answer", kind, "an answer of a verb that writes pages", "wt.as_dict(answer) has any answer as data.")


def _kind_of(answer: Any) -> str:
    return f"{type(answer).__module__.removeprefix('windtunnel.')}.{type(answer).__name__}"
