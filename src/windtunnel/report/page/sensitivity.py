"""The page of what limits a job: a tornado of rates, a list of switches."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import paragraphs
from windtunnel.draw.page.frame import Cell
from windtunnel.report.page.job_lines import describe_job, fields_part
from windtunnel.report.page.plots import TornadoRow, tornado
from windtunnel.report.page.prediction import section
from windtunnel.report.words.sensitivity import memory_sentence, notable_limits, signed_percent, sum_sentence
from windtunnel.search.levers.sensitivity import MORE, Limit, Sensitivity
from windtunnel.sheet import numbers as say


def write_page(result: Sensitivity, path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(result, command), path)


def page(result: Sensitivity, command: str = "") -> str:
    """One offline page with the tornado."""
    limits = notable_limits(result)
    rates = section(f"{100 * MORE:.0f} % more and less of each rate", _tornado(limits))
    body = [rates, section("Sum", paragraphs([sum_sentence(result), memory_sentence(result)]))]
    if result.switches:
        body.append(section("Switches, each turned alone", _switches(result)))
    body.append(section("The rates as a table", _rates(limits)))
    body.append(section("The job", fields_part(result.job)))
    cards = [("step", say.seconds(result.step_time_s), "")]
    cards += [(f"{limit.words}, elasticity", f"{limit.elasticity:+.2f}", "") for limit in limits[:3]]
    title = f"What limits {say.clean(result.job.name)}"
    return frame.page(title, describe_job(result.job), cards, Markup().join(body), None, command)


def _tornado(limits: list[Limit]) -> Markup:
    """The gain of more of each rate to the right, the loss of less to the left."""
    rows = [
        TornadoRow(
            limit.words, (limit.gain, limit.loss), (signed_percent(limit.gain), signed_percent(limit.loss)),
            f"{limit.words}: elasticity {limit.elasticity:+.3f}",
        )
        for limit in limits
    ]  # fmt: skip
    return tornado(rows, "gain of more and loss of less of each rate")


def _rates(limits: list[Limit]) -> Markup:
    rows: list[list[Cell]] = [
        [(limit.words, None), (f"{limit.elasticity:+.3f}", limit.elasticity), (signed_percent(limit.gain), limit.gain),
         (signed_percent(limit.loss), limit.loss)]
        for limit in limits
    ]  # fmt: skip
    more = f"{100 * MORE:.0f} %"
    heads = [("rate", False), ("elasticity", True), (f"gain of {more} more", True), (f"loss of {more} less", True)]
    return frame.part("table", "rates", heads, rows)


def _switches(result: Sensitivity) -> Markup:
    heads = [("setting", False), ("gains", True), ("step", True), ("fits", False)]
    rows: list[list[Cell]] = [
        [(" ".join(turned.sets), None), (signed_percent(turned.gain), turned.gain),
         (say.seconds(turned.step_time_s), turned.step_time_s), ("yes" if turned.fits else "no", None)]
        for turned in result.switches
    ]  # fmt: skip
    return frame.part("table", "switches", heads, rows)
