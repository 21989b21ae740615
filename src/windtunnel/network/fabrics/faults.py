"""Links and switches that are slow or down, chosen by name or at random.

spine3:down                      every link into and out of the node
leaf0--spine3:down               the cable between them, both ways; -> means that way only
leaf*->spine*:slow=0.5           * and ? as in a shell: at half their rate
leaf*--spine*:down,share=1%,seed=7   a random share of what the pattern matches (cables; nodes, where it names nodes)
leaf0--spine3:down=10us,up=2ms   while traffic runs: the cable goes down and, if `up` is there, comes back (a flap)
leaf0--spine3:loss=1e-5          each packet is lost with this probability
leaf0--spine3:ber=1e-12          each bit is wrong with this probability, and a packet with a wrong bit is lost
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.base.units import parse_time
from windtunnel.engine.graph import Graph

_FORM = "PATTERN:down or PATTERN:slow=0.5, with share=1% and seed=1 after commas; PATTERN is a node, A--B or A->B"


@dataclass(frozen=True)
class Fault:
    """`factor` 0 takes the links down, else multiplies their rate; `share` of what matches, drawn with `seed`."""

    a: str
    b: str = ""  # empty: all links of the nodes that match `a`
    both: bool = True
    factor: float = 0.0
    share: float = 1.0
    seed: int = 1


def parse_fault(text: str, option: str = "--fault") -> Fault:
    """The fault that a text describes; SpecError with the form at `option` otherwise."""
    pattern, colon, rest = text.rpartition(":")
    effect, *options = [part.strip() for part in rest.split(",")]
    values = dict(part.split("=", 1) for part in options if "=" in part)
    word, _, number = effect.partition("=")
    try:
        factor = 0.0 if effect == "down" else float(number)
        share = values.pop("share", "1")
        part = float(share[:-1]) / 100 if share.endswith("%") else float(share)
        seed = int(values.pop("seed", "1"))
    except ValueError:
        raise SpecError(option, text, _FORM) from None
    arrow = "->" if "->" in pattern else "--"
    a, separator, b = pattern.partition(arrow)
    wrong = not colon or word not in ("down", "slow") or values or len(options) != len([o for o in options if "=" in o])
    if wrong or not a or (separator and not b) or not 0.0 <= factor <= 1.0 or not 0.0 < part <= 1.0 or seed < 0:
        raise SpecError(option, text, _FORM)
    return Fault(a.strip(), b.strip(), arrow == "--", factor, part, seed)


@dataclass(frozen=True)
class CableFlap:
    """All cables that match go down at `down` seconds, and come back at `up`; infinity: they do not."""

    fault: Fault
    down: float
    up: float = math.inf


@dataclass(frozen=True)
class LinkErrors:
    """What matches loses each packet with probability `loss`, and each bit is wrong with probability `bit_error`."""

    fault: Fault
    loss: float = 0.0
    bit_error: float = 0.0


def parse_errors(text: str, option: str = "--fault") -> LinkErrors:
    """The error rates that a text describes; SpecError with the form at `option` otherwise."""
    form = "PATTERN:loss=1e-5 or PATTERN:ber=1e-12, at least 0 and below 1; PATTERN is a node, A--B or A->B"
    pattern, _, rest = text.rpartition(":")
    rates, others = {"loss": 0.0, "ber": 0.0}, []
    for part in rest.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in rates:
            others.append(part)
            continue
        try:
            rates[key] = float(value)
        except ValueError:
            raise SpecError(option, text, form) from None
    if not all(0.0 <= rate < 1.0 for rate in rates.values()):
        raise SpecError(option, text, form)
    return LinkErrors(parse_fault(",".join([f"{pattern}:down", *others]), option), rates["loss"], rates["ber"])


def parse_flap(text: str, option: str = "--flap") -> CableFlap:
    """The flap that a text describes; SpecError with the form at `option` otherwise."""
    form = "PATTERN:down=10us or PATTERN:down=10us,up=2ms, with share=1% and seed=1 after commas; PATTERN is a node, A--B or A->B"
    pattern, _, rest = text.rpartition(":")
    times: dict[str, float] = {}
    others = []
    for part in rest.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key in ("down", "up"):
            try:
                times[key] = parse_time(value)
            except ValueError:
                raise SpecError(option, text, form) from None
        else:
            others.append(part)
    if "down" not in times or times.get("up", math.inf) <= times["down"]:
        raise SpecError(option, text, form)
    return CableFlap(parse_fault(",".join([f"{pattern}:down", *others]), option), times["down"], times.get("up", math.inf))


def flap_events(graph: Graph, flaps: Iterable[CableFlap], option: str = "--fault") -> list[tuple[float, int, bool]]:
    """(seconds, link, whether it comes up), in order of time; one link stands for its cable."""
    events: list[tuple[float, int, bool]] = []
    for flap in flaps:
        hit = np.flatnonzero(links_of(graph, flap.fault, option))
        for link in np.unique(hit // 2 * 2).tolist():
            events.append((flap.down, link, False))
            if flap.up < math.inf:
                events.append((flap.up, link, True))
    return sorted(events)


def apply_faults(graph: Graph, faults: Iterable[Fault], option: str = "--fault") -> Graph:
    """The graph with the faults' links slow or down; SpecError for a fault that matches nothing."""
    rate, up = graph.link_rate.copy(), graph.link_up.copy()
    for fault in faults:
        hit = links_of(graph, fault, option)
        if fault.factor > 0.0:
            rate[hit] *= fault.factor
        else:
            up[hit] = 0
    return replace(graph, link_rate=rate, link_up=up)


def links_of(graph: Graph, fault: Fault, option: str = "--fault") -> npt.NDArray[np.bool_]:
    """[L] which links the fault hits; SpecError at `option` where its names match nothing."""
    a = _nodes(graph, fault.a, option)
    if not fault.b:
        chosen = _draw(np.flatnonzero(a), fault, option)
        mask = np.zeros(graph.nodes, np.bool_)
        mask[chosen] = True
        return np.asarray(mask[graph.link_from] | mask[graph.link_to])
    b = _nodes(graph, fault.b, option)
    there = a[graph.link_from] & b[graph.link_to]
    back = b[graph.link_from] & a[graph.link_to]
    hit = np.zeros(graph.links, np.bool_)
    if not fault.both:
        hit[_draw(np.flatnonzero(there), fault, option)] = True
        return hit
    # The two links of a cable stand next to each other: even there, odd back.
    matched = there | back
    cables = np.unique(np.flatnonzero(matched) // 2)
    drawn = _draw(cables, fault, option)
    for link in (2 * drawn, 2 * drawn + 1):
        inside = link[link < graph.links]
        hit[inside] = matched[inside]
    return hit


def _nodes(graph: Graph, pattern: str, option: str) -> npt.NDArray[np.bool_]:
    match = re.compile(fnmatch.translate(pattern)).match
    names = graph.names or [graph.name(node) for node in range(graph.nodes)]
    matches = np.fromiter((match(name) is not None for name in names), np.bool_, graph.nodes)
    if not matches.any():
        shown = ", ".join(sorted({re.sub(r"\d+", "*", name) for name in names})[:12])
        raise SpecError(option, pattern, f"the name of a node, such as one of {shown}")
    return matches


def _draw(candidates: npt.NDArray[np.int64], fault: Fault, option: str) -> npt.NDArray[np.int64]:
    if not len(candidates):
        raise SpecError(option, f"{fault.a}{'--' if fault.both else '->'}{fault.b}", "two nodes that a link joins")
    if fault.share >= 1.0:
        return candidates
    wanted = max(1, round(fault.share * len(candidates)))
    return np.sort(np.random.default_rng(fault.seed).choice(candidates, wanted, replace=False))
