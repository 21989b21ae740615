"""What a search of servers shows: the front, the best under the limits, and the command line of every point."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.serving.search import WAVES, ServeChoice, ServeFront, nine_of_ten
from windtunnel.serving.server import ServePlan
from windtunnel.serving.sheet import server_record
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Cell, Column, Figure, Lines, Point, Scatter, Section, Sheet, Table
from windtunnel.sheet.colours import BLUE, GREEN, ORANGE
from windtunnel.sheet.sentence import Sentence, join

MOST = 1500
"""Points that are drawn: the front, and of the others the most throughput."""
SAME = 0.01
"""Difference of two throughputs that is none."""
_BAR = 10 / 24
"""The longest bar of throughput, as a share of the column of bars."""
_NAMES = ("tp", "pp", "dp", "ep")


def front_sheet(found: ServeFront, asked: Sequence[str] = ()) -> Sheet:
    """What `serve-search` shows. `asked`: what the commands of points share, from the model on: words of `serve-predict`."""
    first = found.front[0].served.server
    return Sheet(
        Sentence("Serving {model}: which plan", model=first.model.name),
        Sentence("{model}: output tokens a second of a GPU, and of a user", model=first.model.name),
        _figures(found),
        (
            Section("Tokens a second of a GPU against those of a user", (_points(found, asked),)),
            Section("What no other choice beats", (_table("front", "", found.front, found), *_best(found, asked))),
            *((Section("How many GPUs the whole load takes", (_fleet_table(found),)),) if found.fleets else ()),
            Section("Prompts on copies of their own", _kinds(found)),
            Section("What was tried", _tried_lines(found)),
        ),
        (f"{first.job.cluster.gpu.name} ({first.job.cluster.id})",),
    )


def _figures(found: ServeFront) -> tuple[Figure, ...]:
    best, simulated = found.best, Figure("simulated", "points simulated", found.simulated, "", None, f"{found.simulated:,}")
    if best is None:
        return (Figure("best", "keeps the limits", None, text="nothing", mood="bad"), simulated)
    figures = [
        Figure("best", "tokens/s a GPU, the best", best.throughput, "token/s", None, f"{best.throughput:,.0f}", "good"),
        Figure("best", "tokens/s a user", best.interactivity, "token/s", None, f"{best.interactivity:,.1f}"),
        Figure("best", "first token, mean", best.served.ttft.mean, "s"),
        simulated,
    ]
    if found.gain is not None:
        gain = found.gain - 1.0
        mood = "good" if gain > 0.0 else ""
        figures.insert(1, Figure("gain", "copies for prompts", gain, "%", None, f"{100 * gain:+.1f} %", mood))
    return tuple(figures)


def _points(found: ServeFront, asked: Sequence[str]) -> Scatter:
    """Interactivity across, throughput up; the front first, and after it the most throughput."""
    shown = _order_points(found)
    front = {id(choice) for choice in found.front}

    def point(choice: ServeChoice) -> Point:
        colour = GREEN if choice is found.best else ORANGE if choice.has_sides else BLUE
        words, command = _tell(choice), command_of(choice, asked)
        return Point(choice.interactivity, choice.throughput, words, colour, command, id(choice) in front, choice.has_sides)

    best = next((number for number, choice in enumerate(shown) if choice is found.best), 0)
    legend = [("filled: the front, which no other point beats", BLUE)]
    if found.kinds:
        legend.append(("squares: prompts on copies of their own", ORANGE))
    if found.best is not None:
        legend.append(("the best under the limits" if found.best.served.limits else "the most throughput", GREEN))
    across, up = "output tokens/s of a user", "output tokens/s a GPU"
    points = tuple(point(choice) for choice in shown)
    return Scatter("throughput against interactivity", across, up, points, best, tuple(legend), detail=True)


def _order_points(found: ServeFront) -> list[ServeChoice]:
    front = list(found.front)
    kept = {id(choice) for choice in front}
    others = [choice for choice in (found.choices or found.front) if id(choice) not in kept]
    others.sort(key=lambda choice: -choice.throughput)
    extra = [choice for choice in (found.best, *found.kinds) if choice is not None and id(choice) not in kept]
    seen = {id(choice) for choice in extra}
    distinct = {id(choice): choice for choice in extra}.values()
    return [*front, *distinct, *(choice for choice in others if id(choice) not in seen)][:MOST]


def _tell(choice: ServeChoice) -> Sentence:
    """A point in a line."""
    said = Sentence(
        "{copy}, {users} users: {rate} tokens/s a GPU, {own} a user, first token {first}",
        copy=describe_copy(choice), users=f"{choice.users:,}", rate=f"{choice.throughput:,.0f}",
        own=f"{choice.interactivity:,.1f}", first=say.seconds(choice.served.ttft.mean),
    )  # fmt: skip
    return said if choice.served.limits is None else join((said, _limits_sentence(choice)))


def _fleet_table(found: ServeFront) -> Table:
    """Copies and GPUs of a whole load, the fewest GPUs first."""
    rows = []
    for size in found.fleets:
        spread, dollars = size.served, size.dollars_an_hour
        waits = [Cell(f"{1e3 * value:,.4g}", value) for value in nine_of_ten(spread)]
        counts = [Cell(str(number), number) for number in (size.copies, size.gpus)]
        price = Cell("-" if dollars is None else f"{dollars:,.4g}", dollars)
        rows.append((Cell(describe_copy(size.choice)), *counts, *waits, Cell(say.percent(spread.busy), spread.busy), price))
    numbers = ("of it", "GPUs", "TTFT p90, ms", "TPOT p90, ms", "busy", "$ an hour")
    return Table("fleets", (Column("copy"), *(Column(name, True) for name in numbers)), tuple(rows))


def _limits_sentence(choice: ServeChoice) -> Sentence:
    limits = choice.served.limits
    assert limits is not None
    return Sentence("{share} % of requests keep the limits", share=f"{100 * limits.kept:.0f}")


def command_of(choice: ServeChoice, asked: Sequence[str]) -> str:
    """The command line that predicts this point in full."""
    served, side, server = choice.served, choice.served.prefill, choice.served.server
    gpus = server.job.cluster.gpus if side is None else server.job.cluster.gpus - side.gpus
    plan = _flags(choice.plan, "--{name} {value}", " ")
    words = ["windtunnel serve-predict", *asked, f"--gpus {gpus} --engine {choice.engine} {plan}"]
    if side is not None:
        words.append(f"--prefill gpus={side.gpus},{_flags(side.plan, '{name}={value}', ',')}")
    words.append(f"--kv {choice.kv}" if server.checkpoint else f"--weights {choice.weights} --kv {choice.kv}")
    if server.speculation is not None:
        words.append(f"--speculate {server.speculation.words()}")
    words.append(f"--concurrency {choice.users} --requests {max(WAVES * choice.users, 8)}")
    if served.limits is not None:
        words += [f"--{name} {value:g}" for name, value in (("ttft", served.limits.ttft), ("tpot", served.limits.tpot)) if value]
    return " ".join(words)


def export_command_of(choice: ServeChoice, asked: Sequence[str]) -> str:
    """The command line that writes the script which starts this point's server."""
    side, server = choice.served.prefill, choice.served.server
    words = [
        f"windtunnel export {choice.engine if side is None else 'dynamo'}",
        *asked[:3],
        _flags(choice.plan, "--{name} {value}", " "),
    ]
    if side is not None:
        words.append(f"--option engine={choice.engine}")
        words.append(f"--option prefill=gpus={side.gpus},{_flags(side.plan, '{name}={value}', ',')}")
    if not server.checkpoint and choice.weights != "bf16":
        words.append(f"--option weights={choice.weights}")
    words += [f"--option kv={choice.kv}"] if choice.kv != "bf16" else []
    if server.speculation is not None:
        words.append(f"--option speculate={server.speculation.words()}")
    return " ".join([*words, *_export_options(asked[3:])])


def _export_options(asked: Sequence[str]) -> list[str]:
    """Words of `serve-predict` behind model and machine as those of `export`: changed fields, and options of every copy."""
    words = []
    for place, word in enumerate(asked):
        value = next(iter(asked[place + 1 :]), "--")
        if word == "--set":
            words.append(f"--set {value}")
        elif word.startswith("--") and word not in ("--isl", "--osl", "--seed"):
            words.append(f"--option {word[2:].replace('-', '_')}={'true' if value.startswith('--') else value}")
    return words


def _flags(plan: ServePlan, form: str, between: str) -> str:
    """Degrees of a plan, tp always."""
    others = say.degrees(plan, between, _NAMES[1:], form) if max(plan.pp, plan.dp, plan.ep) > 1 else ""
    return between.join(filter(None, (form.format(name="tp", value=plan.tp), others)))


def _table(key: str, title: str, choices: Sequence[ServeChoice | None], found: ServeFront, names: Sequence[str] = ()) -> Table:
    """Choices with their rates. `names`: of the rows."""
    most = max(choice.throughput for choice in found.front)
    columns = (
        *((Column(""),) if names else ()),
        *(Column("copy"), Column("users", True), Column("a GPU", True), Column("±", True), Column("a user", True)),
        *(Column("TTFT ms", True), Column("$/M", True), Column("")),
    )
    rows = []
    for number, choice in enumerate(choices):
        name = (Cell(names[number]),) if names else ()
        rows.append((*name, *(_cells(choice, most) if choice is not None else (Cell("keeps no limit"), *[Cell("-")] * 7))))
    return Table(key, columns, tuple(rows), title, detail=bool(names))


def _cells(choice: ServeChoice, most: float) -> tuple[Cell, ...]:
    dollars, error = choice.dollars, choice.served.relative_errors()["throughput"]
    return (
        Cell(describe_copy(choice)), Cell(str(choice.users), choice.users), Cell(f"{choice.throughput:,.0f}", choice.throughput),
        Cell(say.error_words(error).strip(" ±"), error), Cell(f"{choice.interactivity:,.1f}", choice.interactivity),
        Cell(f"{1e3 * choice.served.ttft.mean:,.0f}", choice.served.ttft.mean),
        Cell("-" if dollars is None else f"{dollars:.3g}", dollars), Cell("", None, (0.0, _BAR * choice.throughput / most)),
    )  # fmt: skip


def _best(found: ServeFront, asked: Sequence[str]) -> tuple[Block, ...]:
    """The best choice, whether copies for prompts pay, and the record of measured servers."""
    blocks: list[Block] = []
    if (best := found.best) is not None:
        said = Sentence(
            "{copy} with {users} users: {rate} tokens/s a GPU", copy=describe_copy(best), users=best.users,
            rate=f"{best.throughput:,.0f}",
        )  # fmt: skip
        blocks.append(Lines((said if best.served.limits is None else join((said, _limits_sentence(best))),), "best"))
        if asked:
            blocks.append(Lines((export_command_of(best, asked),), "start it"))
    else:
        blocks.append(Lines((join(("nothing keeps the limits", found.nearest), "; "),), "best", "warn"))
    if found.kinds:
        blocks.append(Lines((kinds_sentence(found),), "prompts"))
    record = server_record((found.best or found.front[0]).served)
    return (*blocks, *((Lines(tuple(record), "record"),) if record else ()))


def _kinds(found: ServeFront) -> tuple[Block, ...]:
    """The best of either kind."""
    if not found.kinds:
        return ()
    names = ("prompts beside tokens", "prompts on copies of their own")
    same = "Either kind has the same number of GPUs in all; those that no copy fills count too."
    return (_table("kinds", "", found.kinds, found, names), Lines((same,), detail=True))


def _tried_lines(found: ServeFront) -> tuple[Block, ...]:
    said = Sentence(
        "{simulated} of {asked} points in {seconds} s; {unfit} do not fit, {bound} cannot keep the limits by their bytes alone",
        simulated=found.simulated, asked=found.asked, seconds=f"{found.seconds:.3g}", unfit=found.unfit, bound=found.bound,
    )  # fmt: skip
    if found.beaten:
        said = join((said, Sentence("{beaten} are beaten clearly", beaten=found.beaten)))
    left = len(found.choices) - MOST
    hidden = Sentence("{left} points of less throughput are not drawn.", left=f"{left:,}")
    return (Lines((said,), "tried"), *((Lines((hidden,), detail=True),) if left > 0 else ()))


def kinds_sentence(found: ServeFront) -> Sentence:
    """Whether copies for prompts pay, and how much."""
    together, apart = found.kinds
    own, beside = Sentence("prompts on copies of their own"), Sentence("prompts beside tokens")
    if found.gain is not None:
        more = found.gain - 1.0
        if abs(more) < SAME:
            return Sentence("both kinds give the same tokens/s a GPU under the limits, within {share} %", share=f"{100 * SAME:.0f}")
        assert apart is not None
        return Sentence(
            "{who} give {gain} % more tokens/s a GPU under the limits; the best apart is {copy}", who=own if more > 0.0 else beside,
            gain=f"{100 * (more if more > 0.0 else 1.0 / found.gain - 1.0):.1f}", copy=describe_copy(apart),
        )  # fmt: skip
    if together is None and apart is None:
        return Sentence("neither kind keeps the limits")
    if together is not None and not any(choice.has_sides for choice in found.choices):
        return Sentence(
            "no copies for prompts were simulated: they do not fit beside one for tokens, or their passes alone are too slow"
        )
    return Sentence("only {kind} keep the limits", kind=own if together is None else beside)


def describe_copy(choice: ServeChoice) -> str:
    """A copy as its flags, with the copies for prompts before it."""
    side, form = choice.served.prefill, "{name}{value}"
    formats = choice.weights if choice.kv == "bf16" else f"{choice.weights}/{choice.kv}"
    drafted = choice.served.server.speculation
    formats += "" if drafted is None else f" +{drafted.method}{drafted.drafts}"
    if side is None:
        return f"{choice.engine} {say.degrees(choice.plan, ' ', _NAMES, form)} {formats}"
    front, behind = (say.degrees(plan, ".", _NAMES, form) for plan in (side.plan, choice.plan))
    return f"{choice.engine} {side.copies}x{front} > {side.decode_copies}x{behind} {formats}"
