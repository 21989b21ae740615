"""What `profile host` shows: what the host does by part, and the constants that follow."""

from __future__ import annotations

from windtunnel.base.units import show_time
from windtunnel.capture.host import FrameworkHost
from windtunnel.capture.host_times import HostTimes
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote


def host_sheet(found: FrameworkHost) -> Sheet:
    """What `profile host` shows."""
    times, constants = found.times, found.constants
    headline = Sentence(
        "A layer takes the host {forward} forward and {backward} backward, without launches in the driver",
        forward=show_time(times.forward.seconds), backward=show_time(times.backward.seconds),
    )  # fmt: skip
    rows = tuple((Cell(f"runtime.host.{name}"), Cell(show_time(value), value)) for name, value in constants.items())
    parts = [("as it was run", times), *([] if found.whole is None else [("parameters whole", found.whole)])]
    return Sheet(
        "The host of a framework", headline,
        (
            Figure("forward_s", "a layer, forward", times.forward.seconds, "s", None, show_time(times.forward.seconds)),
            Figure("backward_s", "a layer, backward", times.backward.seconds, "s", None, show_time(times.backward.seconds)),
            Figure("update_s", "an update", times.update.seconds, "s", None, show_time(times.update.seconds)),
            Figure("call_s", "a call before NCCL", times.call, "s", None, show_time(times.call)),
        ),
        (
            Section("What the host does", tuple(_parts(name, of) for name, of in parts)),
            Section("What a prediction reads", (
                Table("constants", (Column("field"), Column("seconds", True)), rows), Lines((quote(found.source),), mood="soft"),
            )),
        ),
        (headline,), titled=True,
    )  # fmt: skip


def _parts(name: str, times: HostTimes) -> Table:
    named = (
        ("a layer, forward", times.forward), ("a layer, backward", times.backward),
        ("a micro batch besides its layers", times.rest), ("an update and what is around it", times.update),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(Sentence(said)), Cell(show_time(part.seconds), part.seconds), Cell(f"{part.kernels:.0f}", part.kernels),
            Cell(f"{part.calls:.0f}", part.calls),
        )
        for said, part in named
    )  # fmt: skip
    heads = (Column(name, wraps=True), Column("seconds", True), Column("kernels", True), Column("calls", True))
    return Table(f"parts of {name}", heads, rows, Sentence("Of {layers} layers, {how}", layers=times.layers, how=Sentence(name)))
