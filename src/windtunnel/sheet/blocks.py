"""What a sheet is made of: sentences, tables and charts, as data. Numbers are in SI units beside the words that say them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.sheet import numbers
from windtunnel.sheet.colours import BLUE

UNITS: dict[str, Callable[[float], str]] = {
    "": numbers.plain_number,
    "s": numbers.seconds,
    "s long": numbers.long_time,
    "s measured": numbers.measured_seconds,
    "h": lambda value: f"{value:,.1f} h",
    "B": numbers.size,
    "B/s": numbers.rate,
    "%": numbers.share,
    "$": numbers.dollars,
    "J": numbers.energy,
    "W": numbers.watts,
}
"""Unit of a number -> how it is said. A share (0 to 1) has the unit %; `s long` is seconds, said up to
days, `s measured` with four digits."""


def say_in(unit: str, value: float) -> str:
    """A number with its unit in words; a unit without a rule of its own stands behind the number."""
    rule = UNITS.get(unit)
    return rule(value) if rule is not None else f"{numbers.plain_number(value)} {unit}"


@dataclass(frozen=True)
class Figure:
    """A number that an answer is asked for. `key`: its name in JSON, with the name of the part that has it before a dot; `unit`: of
    `value`; `error`: its relative ±; `text`: the value in words, by default as its unit is said; `within`: the same with its ±,
    where pages say it in another way; `mood`: good, warn, bad or nothing; `basis`: what it rests on (measured, assumed, …)."""

    key: str
    label: str
    value: float | str | None
    unit: str = ""
    error: float | None = None
    text: str = ""
    mood: str = ""
    basis: str = ""
    within: str = ""

    def words(self) -> str:
        """The value in words without its error."""
        if self.text or self.value is None or isinstance(self.value, str):
            return self.text or str(self.value if self.value is not None else "-")
        return say_in(self.unit, self.value)

    def with_error(self, words: Callable[[str], str] = str) -> str:
        """The value in words of a language, and its ±."""
        return words(self.words()) + numbers.error_words(self.error)


@dataclass(frozen=True)
class Block:
    """A part of a section. `detail`: pages show it, the terminal does not; `brief`: the terminal shows it, pages do not."""

    detail: bool = field(default=False, kw_only=True)
    brief: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Lines(Block):
    """Sentences. `label`: what they are about, in one word; `mood`: warn, bad, soft, or code,
    whose lines never break; `listed`: each is an entry of a list, which
    has a `title` on pages."""

    lines: tuple[str, ...]
    label: str = ""
    mood: str = ""
    listed: bool = False
    title: str = ""


class Item(NamedTuple):
    """A sentence of a list: numbered, or behind a mark if its mood is warn or bad, or beside them if it is soft. `detail`: pages
    show it, the terminal does not."""

    text: str
    mood: str = ""
    detail: bool = False


@dataclass(frozen=True)
class Items(Block):
    """Sentences in the order in which they matter."""

    items: tuple[Item, ...]


class Column(NamedTuple):
    """A column of a table: its head, whether its cells are numbers, and where it is left out: `narrow` windows, the `terminal`, or
    `pages`. `wraps`: long cells break into lines; `short`: the head in narrow windows."""

    head: str
    number: bool = False
    left_out: str = ""
    wraps: bool = False
    short: str = ""


class Cell(NamedTuple):
    """A cell: text, the number to sort by and to compute with (SI units), and a bar over a share of the column's width (begin and
    end, 0 to 1)."""

    text: str
    value: float | None = None
    bar: tuple[float, float] | None = None


@dataclass(frozen=True)
class Table(Block):
    """Rows under heads. `key`: its name, as a file; `bold_last`: the last row is a sum; `most`: rows that the terminal shows, 0 for
    all; `rest`: what it says of the others, with their {count}; `tight`: columns are close in narrow windows."""

    key: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    bold_last: bool = False
    filtered: bool = False
    most: int = 0
    rest: str = ""
    tight: bool = False


class Part(NamedTuple):
    """A part of a whole: name, value, its colour; `rest`: what nothing takes, which has no bar of its own."""

    name: str
    value: float
    colour: str
    rest: bool = False


@dataclass(frozen=True)
class Shares(Block):
    """A whole cut into parts of one `unit`: a stripe, and a bar for each. `groups`: what the stripe shows instead, where parts are
    many; bars are in the order of the parts then."""

    parts: tuple[Part, ...]
    unit: str
    title: str = ""
    mood: str = ""
    groups: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Stripes(Block):
    """Wholes below each other, each with its name and cut into parts of one `unit`."""

    rows: tuple[tuple[str, tuple[Part, ...]], ...]
    unit: str


class Layer(NamedTuple):
    """A part that stacked bars have in common: its name, its colour, and a short head and a letter for the terminal."""

    name: str
    colour: str
    short: str = ""
    letter: str = ""


class Stack(NamedTuple):
    """A stacked bar: its name, a value for each layer, what it may be at most, what is said behind it on pages, and `lacks`, what
    it is over the limit, in words."""

    name: str
    values: tuple[float, ...]
    limit: float = 0.0
    said: str = ""
    lacks: str = ""


@dataclass(frozen=True)
class Stacks(Block):
    """Stacked bars on one scale; the terminal has their values in a table. `head`: what a bar is; `unit`: of the values, which the
    terminal divides by `scale[0]` and calls `scale[1]`; `limit`: what the limits are."""

    label: str
    head: str
    layers: tuple[Layer, ...]
    stacks: tuple[Stack, ...]
    unit: str
    scale: tuple[float, str] = (1.0, "")
    limit: str = ""


@dataclass(frozen=True)
class Folded(Block):
    """Blocks that a page shows when its title is clicked."""

    title: str
    blocks: tuple[Block, ...]


class Axis(NamedTuple):
    """An axis from `least` to `most`, of one `unit`; `mark`: a value with a line of its own, and what it is."""

    most: float
    unit: str = ""
    least: float = 0.0
    mark: tuple[float, str] | None = None


class Curve(NamedTuple):
    """A line of a drawing: its name, its colour, and its points."""

    name: str
    colour: str
    points: tuple[tuple[float, float], ...]
    dash: str = ""
    filled: bool = False


@dataclass(frozen=True)
class Curves(Block):
    """Curves over one axis. `label`: what is drawn, for who cannot see it; `legend`: a line that names the curves, and what is said
    of all of them; `group`: drawings of one group share what the mouse is over."""

    label: str
    curves: tuple[Curve, ...]
    across: Axis
    up: Axis
    tall: float = 190.0
    legend: bool = True
    about: str = ""
    title: str = ""
    group: str = ""


class Span(NamedTuple):
    """Something that lasts from `begin` to `end` (s): `row` it is drawn in, its name and colour."""

    row: str
    name: str
    begin: float
    end: float
    colour: str


@dataclass(frozen=True)
class Spans(Block):
    """What happens when: rows over one time, of `seconds` in all; `legend`: names of colours."""

    label: str
    rows: tuple[str, ...]
    spans: tuple[Span, ...]
    seconds: float
    legend: tuple[tuple[str, str], ...] = ()


class Point(NamedTuple):
    """A point of a plot: what is said of it, and the command line that gives its answer; `joined`: whether the line of the front
    goes through it."""

    x: float
    y: float
    words: str
    colour: str = BLUE
    command: str = ""
    joined: bool = False
    square: bool = False


@dataclass(frozen=True)
class Scatter(Block):
    """Points over two logarithmic axes, of which one is chosen at a time; `best`: the number of the one that is chosen first;
    `legend`: names of colours."""

    label: str
    across: str
    up: str
    points: tuple[Point, ...]
    best: int = 0
    legend: tuple[tuple[str, str], ...] = ()


class Scale(NamedTuple):
    """An axis of a plot: what it counts and its `unit`; `log`: whether it is logarithmic; `least`: where a linear one begins;
    `ticks`: where numbers stand, if not at round ones."""

    title: str
    unit: str = ""
    log: bool = False
    least: float | None = None
    ticks: tuple[float, ...] = ()


class Mark(NamedTuple):
    """A point of a plot with its tip. `shape`: circle, square, diamond, cross, or dot where they are thousands; `hollow`: only its
    edge."""

    x: float
    y: float
    tip: str
    colour: str = BLUE
    shape: str = "circle"
    hollow: bool = False


@dataclass(frozen=True)
class Plot(Block):
    """Points and curves over two axes. `legend`: names of colours; `about`: what is said of all of them; `sketch`: the terminal
    draws the first curve as blocks, with a sign below the first mark."""

    label: str
    across: Scale
    up: Scale
    marks: tuple[Mark, ...] = ()
    curves: tuple[Curve, ...] = ()
    tall: float = 360.0
    legend: tuple[tuple[str, str], ...] = ()
    about: str = ""
    sketch: bool = False


class Bar(NamedTuple):
    """A bar: its name, its value, the share of its track that it fills (0 to 1), its colour, and a tip."""

    name: str
    value: float
    share: float
    colour: str
    tip: str = ""


@dataclass(frozen=True)
class Bars(Block):
    """Bars below each other, each a share of a whole of its own, with a value of one `unit`. Pages alone draw them."""

    bars: tuple[Bar, ...]
    unit: str


class Change(NamedTuple):
    """What one change gives, as bars of a tornado: shares to the right of the middle are gains. `said`: at their outer ends."""

    name: str
    shares: tuple[float, ...]
    said: tuple[str, ...]
    tip: str = ""


@dataclass(frozen=True)
class Tornado(Block):
    """Gains to the right of a middle line, losses to the left. Pages alone draw it."""

    label: str
    changes: tuple[Change, ...]
    about: str = ""


@dataclass(frozen=True)
class Picture(Block):
    """A drawing of its own kind, by a painter of that name: `data` has what it draws."""

    painter: str
    data: Any
    label: str = ""


class Advice(NamedTuple):
    """Something to do: what, what it gives, and what it costs."""

    what: str
    gain: str
    price: str = ""


@dataclass(frozen=True)
class Advices(Block):
    """What to do, the best first."""

    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class Section:
    """A titled part of a sheet."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Sheet:
    """What an answer shows. `title`: of its page; `headline`: its first line in the terminal; `subtitle`: under a page's title;
    `figures`: its main numbers. `titled`: whether the terminal shows titles of sections, or labels of lines alone; `cards`: whether
    it shows the figures in columns, below the first section."""

    SCHEMA: ClassVar[int] = 1
    """Rises when a block changes its meaning."""

    title: str
    headline: str
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    subtitle: tuple[str, ...] = ()
    titled: bool = False
    cards: bool = False
