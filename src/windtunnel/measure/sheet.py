"""What the verbs of `windtunnel measure` show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windtunnel.measure.cells import MeasuredCell, UsedCell
from windtunnel.measure.judge import CheckedCell, UnseenStep
from windtunnel.measure.planning import unmeasured_parts
from windtunnel.profile.campaign import Campaign
from windtunnel.profile.served.loads import loads_of
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.blocks import Cell as Box
from windtunnel.sheet.sentence import Sentence, quote


def plan_sheet(campaign: Campaign, folder: str) -> Sheet:
    """What a plan runs, in which order, for how long, and why."""
    if campaign.server:
        return _server_plan_sheet(campaign, folder)
    rows = tuple(
        (
            Box(part.name), Box(Sentence(_KINDS[part.kind])),
            Box(say.seconds(campaign.budget * part.share), campaign.budget * part.share), Box(", ".join(part.modes)),
        )
        for part in campaign.slices
    )  # fmt: skip
    why = tuple(quote(f"{part.name}: {part.why}") for part in campaign.slices)
    lost = unmeasured_parts(campaign)
    said: list[Block] = [Lines(why, mood="soft")]
    if lost:
        said.append(Lines((Sentence("Not measured by this plan, and stays as it is: {what}.", what=", ".join(lost)),)))
    columns = (Column("slice"), Column("what it measures"), Column("time", True), Column("modes"))
    shares = tuple(
        (Box(what), Box(say.percent(share), share)) for what, share in sorted(campaign.shares.items(), key=lambda one: -one[1])
    )
    command = _next_command(folder)
    return Sheet(
        Sentence("A plan of measurements on {gpu}", gpu=campaign.gpu),
        Sentence("for predictions of {jobs}", jobs=", ".join(campaign.jobs)),
        (Figure("budget_s", "budget", campaign.budget, "s"),),
        (
            Section("What runs", (Table("slices", columns, rows),)),
            Section("Why", tuple(said)),
            Section("Share of the stated error", (Table("shares", (Column("what"), Column("share", True)), shares),)),
            Section("Next", (Lines((command,), mood="code"),)),
        ),
        titled=True,
    )  # fmt: skip


def _next_command(folder: str) -> Sentence:
    return quote(f"windtunnel measure run {folder}" if folder else "windtunnel measure plan … --out FOLDER")


def _server_plan_sheet(campaign: Campaign, folder: str) -> Sheet:
    """The loads that are sent to a running server, and what it says of itself."""
    server = campaign.server
    loads = loads_of(server)
    rows = tuple(
        (Box(kind), Box(Sentence(_KINDS[kind])), Box(str(count), count))
        for kind, count in Counter(load.kind for load in loads).items()
    )
    said = tuple(
        (Box(Sentence(word)), Box(f"{server[name]:,}", server[name]) if server[name] else Box(Sentence("not said")))
        for name, word in _LIMITS.items()
    )
    columns = (Column("slice"), Column("what it measures"), Column("loads", True))
    engine = f"{server['engine'] or 'server'} {server['release']}".strip()
    return Sheet(
        Sentence("A plan of measurements on {gpu}", gpu=server["url"]),
        Sentence("passes of {model} behind {engine}", model=server["model"], engine=engine),
        (Figure("budget_s", "budget", campaign.budget, "s"),),
        (
            Section("What runs", (Table("slices", columns, rows),)),
            Section("Limits of the server", (Table("limits", (Column("limit"), Column("most", True)), said),)),
            Section("Next", (Lines((_next_command(folder),), mood="code"),)),
        ),
        titled=True,
    )  # fmt: skip


_LIMITS = {
    "step_tokens": "tokens of a pass", "running": "requests at once", "most_tokens": "tokens of a request",
    "cache_tokens": "tokens of the cache",
}  # fmt: skip

_KINDS = {
    "layers": "layers, their modules and kernels, memory", "kernels": "kernels one by one", "collectives": "calls between ranks",
    "storage": "checkpoints written and read, samples of tokens",
    "step": "whole steps", "prompts": "prompts of one length behind a full pass", "decodes": "requests that decode together",
    "mixed": "a prompt beside requests that decode",
}  # fmt: skip


def cells_sheet(cells: Sequence[MeasuredCell], title: str = "Measured cells") -> Sheet:
    """What was measured, and whether it was checked."""
    rows = tuple(
        (
            Box(cell.folder), Box(cell.gpu), Box(", ".join(cell.jobs)), Box(f"{cell.rows:,}", float(cell.rows)),
            Box(f"{cell.usable:,}", float(cell.usable)), Box(cell.checked), Box(cell.licence),
        )
        for cell in cells
    )  # fmt: skip
    columns = (
        Column("folder"), Column("GPU"), Column("jobs"), Column("rows", True), Column("usable", True), Column("check", wraps=True),
        Column("licence"),
    )  # fmt: skip
    notes = tuple(quote(f"{cell.folder}: {cell.notes}") for cell in cells if cell.notes)
    seals = tuple(quote(f"{cell.folder}/{name} {seal}") for cell in cells for name, seal in cell.files.items())
    total = sum(cell.rows for cell in cells)
    return Sheet(
        Sentence(title), Sentence("{count} rows in {cells} folders", count=f"{total:,}", cells=len(cells)),
        (Figure("rows", "rows", total, "", None, f"{total:,}"),),
        (
            Section("", (Table("cells", columns, rows),)),
            *(Section("Checkpoints and samples", (storage_table(cell),)) for cell in cells if cell.storage),
            Section("Empty columns", (Lines(notes, mood="soft"),) if notes else ()),
            Section("Seals", (Lines(seals, mood="soft", detail=True),) if seals else ()),
        ),
        titled=True,
    )  # fmt: skip


def storage_table(cell: MeasuredCell) -> Table:
    """What the files of a cell took, by what was done with how many at once."""
    columns = (Column("what"), *(Column(head, True) for head in ("at once", "bytes of each", "time", "rate of all")))
    rows = tuple(
        (
            Box(one.what), Box(str(one.at_once), one.at_once), Box(say.size(one.each), one.each),
            Box(say.seconds(one.seconds), one.seconds), Box(f"{say.size(one.rate)}/s", one.rate),
        )
        for one in cell.storage
    )  # fmt: skip
    return Table("storage", columns, rows)


def check_sheet(checked: CheckedCell) -> Sheet:
    """Errors of what was held back and of steps that were not seen, and the verdict."""
    held = tuple(
        (
            Box(one.what), Box(f"{one.rows:,}", one.rows), Box(f"{one.mape_pct:.1f} %", one.mape_pct),
            Box(f"{one.bias_pct:+.1f} %", one.bias_pct), Box(f"±{one.stated_pct:.0f} %", one.stated_pct),
            Box(say.percent(one.coverage, 0), one.coverage),
        )
        for one in checked.held_out
    )  # fmt: skip
    steps, saves = map(_steps_rows, (checked.steps, checked.saves))
    whole = checked.held_out[0]
    within = f"±{checked.within_pct:.0f} %"
    usable = Sentence("Predictions may rest on it, within {error}.", error=within)
    verdict = usable if checked.usable else Sentence("Predictions may not rest on it.")
    heads = ("rows", "mean |error|", "bias", "stated", "within it")
    of_steps = ("pace", "predicted", "measured", "fastest", "error", "stated")
    flags = tuple(map(quote, checked.flagged))
    return Sheet(
        Sentence("Check of {folder}", folder=checked.folder), verdict,
        (
            Figure("mape_pct", _ERRORS[checked.of], whole.mape_pct, "%"),
            Figure("coverage_pct", "within their stated error", 100.0 * whole.coverage, "%"),
        ),
        (
            Section("Why not", (Lines(tuple(map(quote, checked.reasons)), listed=True),) if checked.reasons else ()),
            Section(_HELD[checked.of], (
                Table("held_out", (Column("class"), *(Column(head, True) for head in heads)), held),
            )),
            Section(_UNSEEN[checked.of], (
                Table("steps", (Column("step"), *(Column(head, True) for head in of_steps), Column("holds")), steps),
            ) if steps else ()),
            Section("A save and a load that no row has", (
                Table("saves", (Column("files"), *(Column(head, True) for head in of_steps), Column("holds")), saves),
            ) if saves else ()),
            Section("Outputs that differ", (Lines(flags, listed=True),) if flags else ()),
        ),
        titled=True,
    )  # fmt: skip


def _steps_rows(steps: Sequence[UnseenStep]) -> tuple[tuple[Box, ...], ...]:
    return tuple(
        (
            Box(step.what), Box(f"{step.pace:.2f}", step.pace),
            Box(say.seconds(step.predicted), step.predicted), Box(say.seconds(step.measured), step.measured),
            Box(say.seconds(step.fastest), step.fastest), Box(f"{step.error_pct:+.1f} %", step.error_pct),
            Box(f"±{step.stated_pct:.0f} %", step.stated_pct), Box(Sentence("yes") if step.holds else Sentence("no")),
        )
        for step in steps
    )  # fmt: skip


_HELD = {"kernels": "Kernels that were held back", "passes": "Passes that were held back"}
_UNSEEN = {"kernels": "Steps that no fit has seen", "passes": "A load that no fit has seen"}
_ERRORS = {"kernels": "mean error of held-out kernels", "passes": "mean error of held-out passes"}


def used_sheet(used: UsedCell) -> Sheet:
    """The files that predictions rest on from now on, and what to type."""
    files = tuple(map(quote, (used.kernels, used.machine, *used.jobs)))
    return Sheet(
        Sentence("Predictions on {gpu} from measurements", gpu=used.cell.gpu),
        Sentence("{count} rows", count=f"{used.cell.rows:,}"),
        (Figure("rows", "rows", used.cell.rows, "", None, f"{used.cell.rows:,}"),),
        (
            Section("Files", (Lines(files, mood="code"),)),
            Section("Checkpoints and samples", _used_files(used)),
            Section("Next", (Lines(tuple(map(quote, used.commands)), mood="code"),)),
        ),
        titled=True,
    )  # fmt: skip


def _used_files(used: UsedCell) -> tuple[Block, ...]:
    """What the machine's node has of files, or why it has nothing."""
    if used.left_out:
        return (Lines((Sentence("Left out, without --anyway: {why}.", why=used.left_out),)),)
    if used.storage is None:
        return ()
    rates = {name: getattr(used.storage, name) for name in ("write", "read", "stage")}
    said = [(Box(name), Box(f"{say.size(rate)}/s", rate)) for name, rate in rates.items() if rate is not None]
    said += [(Box(name), Box(say.seconds(one), one)) for name in ("latency", "sample") if (one := getattr(used.storage, name))]
    return (Table("files", (Column("of a node"), Column("measured", True)), tuple(said)),)
