"""Charts of a search: the values of the space, plans by two objectives, plans as lines through their fields, what limits a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.report.words.search import value_text
from windtunnel.service.page.charts.plot import (
    BLUE,
    FONT,
    GREEN,
    GREY,
    INK,
    LINE,
    ORANGE,
    SOFT,
    Options,
    names_axis,
    numbers_axis,
    plot,
)

Plan = Mapping[str, Any]
MOST_LINES = 60
"""Plans that parallel coordinates show."""


def space_bars(fields: Mapping[str, Sequence[str]], unit: str) -> Options:
    """How many values each open field has, and which. `fields`: path -> values in words; `unit`: what is counted."""
    names = list(fields)
    data = [{"name": f"{path}: {', '.join(values)}", "value": len(values)} for path, values in fields.items()]
    labels = [", ".join(values) for values in fields.values()]
    for one, words in zip(data, labels, strict=True):
        one["label"] = {"show": True, "position": "right", "formatter": words[:48], "color": INK}
    y = names_axis(names, vertical=True, downwards=True)
    x = numbers_axis(unit, least=0)
    x["max"], x["minInterval"] = 1.6 * max((len(v) for v in fields.values()), default=1), 1
    x["axisLabel"] |= {"showMaxLabel": False}
    return plot(x, y, [{"type": "bar", "data": data, "barWidth": 14, "itemStyle": {"color": BLUE, "borderRadius": 3}}], left=150)


def front_scatter(plans: Sequence[Plan], x: str, y: str, names: Mapping[str, str], on_front: int) -> Options:
    """Plans by two numbers, `x` and `y` (keys as of `plan_number`). `names`: key -> axis with unit; the first `on_front` plans are
    the front."""

    def points(some: Sequence[Plan]) -> list[Options]:
        return [{"name": plan_words(one) or "=", "value": [plan_number(one, x), plan_number(one, y)], "plan": plans.index(one)}
                for one in some]  # fmt: skip

    series: list[Options] = [
        {"type": "scatter", "name": "others", "data": points(plans[on_front:]), "symbolSize": 10, "itemStyle": {"color": GREY}},
        {"type": "scatter", "name": "front", "data": points(plans[:on_front]), "symbolSize": 14, "symbol": "diamond",
         "itemStyle": {"color": ORANGE}},
    ]  # fmt: skip
    return plot(numbers_axis(names[x]), numbers_axis(names[y], vertical=True), series)


def plan_number(plan: Plan, key: str) -> float:
    """A number of a plan: memory in GB, MFU in %, step time in s, dollars a step, tokens/s."""
    value = float(plan.get(key) or 0.0)
    return value / 1e9 if key == "memory" else 100 * value if key == "mfu" else value


def plan_words(plan: Plan) -> str:
    """What a plan changes, in words: `tp 2, recompute none`."""
    frame = [str(plan["frame"])] if plan.get("frame") else []
    sets = [str(one).removeprefix("plan.").removeprefix("runtime.").replace("=", " ", 1) for one in plan.get("set", ())]
    return ", ".join([*frame, *sets])


def parallel_plans(plans: Sequence[Plan], names: Mapping[str, str], on_front: int) -> Options:
    """Plans as lines through the fields that differ, and through numbers of `names` (key -> axis with unit)."""
    shown = list(plans[:MOST_LINES])
    paths = [path for path in (shown[0]["plan"] if shown else ()) if len({str(one["plan"].get(path)) for one in shown}) > 1]
    axes: list[Options] = []
    for number, path in enumerate(paths):
        values = {_word(one["plan"].get(path)): one["plan"].get(path) for one in shown}
        axes.append({"dim": number, "name": path.removeprefix("plan.").removeprefix("runtime."), "type": "category",
                     "data": sorted(values, key=lambda word: _order(values[word], word))})  # fmt: skip
    axes += [{"dim": len(paths) + number, "name": name, "scale": True} for number, name in enumerate(names.values())]
    lines = [
        {"name": plan_words(one),
         "value": [*(_word(one["plan"].get(path)) for path in paths), *(plan_number(one, key) for key in names)],
         "lineStyle": {"color": ORANGE if number < on_front else BLUE, "width": 3 if number < on_front else 1.2,
                       "opacity": 1.0 if number < on_front else 0.45}}
        for number, one in reversed(list(enumerate(shown)))
    ]  # fmt: skip
    return {
        "animation": False,
        "aria": {"enabled": True},
        "textStyle": {"fontFamily": FONT, "color": SOFT},
        "tooltip": {"formatter": "{b}", "confine": True},
        "parallel": {"left": 44, "right": 76, "top": 48, "bottom": 24, "parallelAxisDefault": {
            "nameTextStyle": {"color": INK}, "axisLabel": {"color": SOFT}, "axisLine": {"lineStyle": {"color": LINE}},
            "axisTick": {"show": False}, "nameGap": 20}},
        "parallelAxis": axes,
        "series": [{"type": "parallel", "data": lines, "smooth": False}],
    }  # fmt: skip


def _word(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return value_text(tuple(value))
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _order(value: Any, word: str) -> tuple[int, float, str]:
    """Numbers by size, then words."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (0, float(value), "") if number else (1, 0.0, word)


def limit_bars(limits: Sequence[Mapping[str, Any]], axis: str) -> Options:
    """Tornado: what 10 % more of a rate saves of the step, and what 10 % less costs, in % of the step."""
    shown = [one for one in limits if abs(one.get("gain") or 0.0) + abs(one.get("loss") or 0.0) > 5e-4]
    names = [str(one["words"]) for one in shown]

    def bars(key: str, colour: str) -> Options:
        data = [
            {"name": f"{one['words']}: {100 * (one.get(key) or 0.0):+.2f} %", "value": 100 * (one.get(key) or 0.0)} for one in shown
        ]
        return {"type": "bar", "stack": "one", "data": data, "barWidth": 14, "itemStyle": {"color": colour}}

    y = names_axis(names, vertical=True, downwards=True)
    y["axisLabel"] |= {"width": 150, "overflow": "truncate"}
    y["axisLine"] = {"onZero": False, "lineStyle": {"color": LINE}}
    return plot(numbers_axis(axis, least=None), y, [bars("gain", GREEN), bars("loss", ORANGE)], left=166)


def switch_bars(switches: Sequence[Mapping[str, Any]], axis: str) -> Options:
    """What each switch gains of the step, in %."""
    names = [", ".join(one["set"]) for one in switches]
    data = [
        {"name": f"{name}: {100 * one['gain']:+.2f} %", "value": 100 * one["gain"],
         "itemStyle": {"color": GREEN if one["gain"] > 0 else ORANGE, "opacity": 1 if one.get("fits", True) else 0.35}}
        for name, one in zip(names, switches, strict=True)
    ]  # fmt: skip
    y = names_axis([name.removeprefix("runtime.").removeprefix("plan.") for name in names], vertical=True, downwards=True)
    y["axisLabel"] |= {"width": 190, "overflow": "truncate"}
    y["axisLine"] = {"onZero": False, "lineStyle": {"color": LINE}}
    return plot(numbers_axis(axis), y, [{"type": "bar", "data": data, "barWidth": 14}], left=206)
