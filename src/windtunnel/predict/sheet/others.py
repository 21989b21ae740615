"""What a step has beside itself: ranks that differ, faults of the fabric, other traffic, a save on the fabric."""

from __future__ import annotations

from windtunnel.network.traffic_sheet import fabric_picture
from windtunnel.predict.prediction import FaultCost, ReplicaClass, SaveCost, SharedLink, SharedTraffic, Sharing, UnequalResult
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Cell, Column, Lines, Picture, Table
from windtunnel.sheet.sentence import Sentence, join, quote

MOST_CLASSES = 12
"""Groups of replicas that the terminal lists."""
MOST_LINKS = 5
"""Shared links that it lists."""
_COUNTED = {"losses": "{count} packets lost", "timeouts": "{count} timeouts", "retransmits": "{count} packets sent again"}
_WHAT = {"job": "step", "flows": "list of flows", "save": "part of a save"}


def unequal_blocks(result: UnequalResult, step: float) -> tuple[Block, ...]:
    """Who waits for whom: a sentence, groups of replicas, and a map of all of them."""
    heads = (Column("replicas"), Column("computes", True), Column("waits for slower", True), Column("in the bubble", True))
    rows = tuple(_class_cells(group, result) for group in classes_in_order(result))
    left = "{count} more groups of replicas"
    table = Table("unequal", (*heads, Column("what", wraps=True)), rows, most=MOST_CLASSES, rest=left)
    return (Lines((unequal_sentence(result, step),)), table, *_replica_maps(result))


def unequal_sentence(result: UnequalResult, step: float) -> str:
    """The cost of unequal ranks, and which ranks the others wait for."""
    base = result.equal_step_time_s
    share = step / base - 1.0 if base > 0.0 else 0.0
    text = (
        "A step takes {time} ({share}) longer than with equal ranks."
        if step >= base
        else "A step takes {time} ({share}) shorter than with equal ranks."
    )
    said = [Sentence(text, time=say.seconds(abs(step - base)), share=f"{abs(share):.1%}")]
    if result.culprit:
        said.append(Sentence("It ends with {rank}.", rank=result.culprit))
    if len(result.steps) > 1:
        shortest = min(seconds for _, seconds in result.steps)
        said.append(
            Sentence(
                "{count} drawn steps take {shortest} to {longest}.",
                count=len(result.steps), shortest=say.seconds(shortest), longest=say.seconds(result.slowest),
            )
        )  # fmt: skip
    return join(said, " ")


def classes_in_order(result: UnequalResult) -> list[ReplicaClass]:
    """The largest group, then those that wait least."""
    first, *rest = result.classes
    return [first, *sorted(rest, key=lambda group: (max(group.waiting_s), group.replicas))]


def _class_cells(group: ReplicaClass, result: UnequalResult) -> tuple[Cell, ...]:
    slow = max(range(len(group.slow)), key=lambda stage: (group.slow[stage], -stage))
    what: list[str] = []
    if abs(group.slow[slow] - 1.0) > 5e-4:
        what.append(Sentence("stage {number} {share}", number=slow, share=f"{group.slow[slow] - 1.0:+.1%}"))
    if len({name for other in result.classes for name in other.gpus}) > 1:
        what += [say.clean(name) for name in dict.fromkeys(group.gpus)]
    if len({other.micro_batches for other in result.classes}) > 1:
        what.append(say.micro_batches(group.micro_batches))
    times = (max(group.computing_s), max(group.waiting_s), min(group.bubble_s))
    return (Cell(group.name), *(Cell(say.seconds(value), value) for value in times), Cell(join(what) if what else ""))


def _replica_maps(result: UnequalResult) -> tuple[Picture, ...]:
    maps = []
    for what, colour, name in (("computes", "#dc2626", "computing_s"), ("waits for slower ranks", "#a16207", "waiting_s")):
        values = [list(getattr(group, name)) for group in result.classes]
        low, high = (say.seconds(pick(pick(stages) for stages in values)) for pick in (min, max))
        about = Sentence("{what}: {low} (pale) to {high}", what=Sentence(what), low=low, high=high)
        data = {"groups": values, "group_of": list(result.class_of_replica), "colour": colour, "about": about}
        maps.append(Picture("replicas", data, Sentence("{what}, by replica and stage", what=Sentence(what)), detail=True))
    return tuple(maps)


def faults_sentence(faults: FaultCost) -> str:
    """The cost, the step without them, and what packets did."""
    what = (
        Sentence("{count} faults of the fabric", count=len(faults.stated))
        if len(faults.stated) > 1
        else Sentence("The fault {fault} of the fabric", fault=faults.stated[0])
    )
    text = (
        "{what}: {time} more a step than the {whole} without"
        if faults.cost_s >= 0
        else "{what}: {time} less a step than the {whole} without"
    )
    said = Sentence(text, what=what, time=say.seconds(abs(faults.cost_s)), whole=say.seconds(faults.whole_step_time_s))
    counted = [
        Sentence(_COUNTED[name], count=f"{number:,.0f}") for name, number in faults.counts.items() if name in _COUNTED and number
    ]
    return Sentence("{said} ({counted}).", said=said, counted=join(counted)) if counted else Sentence("{said}.", said=said)


def sharing_blocks(shared: Sharing) -> tuple[Block, ...]:
    """What the traffics do to each other, the links that they share, and the fabric under all of them."""
    heads = (Column("traffic", wraps=True), Column("nodes", wraps=True))
    times = ("alone", "beside", "longest", "slower by")
    columns = (*heads, *(Column(head, True) for head in times))
    blocks: list[Block] = [
        Lines((sharing_sentence(shared),)),
        Table("sharing", columns, tuple(_traffic_cells(traffic) for traffic in shared.traffics)),
    ]
    if shared.traffic.boxes:
        blocks.append(fabric_picture(shared.traffic))
    if shared.links:
        columns = (
            Column("shared link", wraps=True),
            Column("rate", True),
            Column("used", True),
            Column("asked by each alone", wraps=True),
        )
        rows = tuple(_link_cells(link) for link in shared.links)
        blocks.append(Table("shared-links", columns, rows, most=MOST_LINKS))
    phases = Sentence("{count} relative starts", count=shared.phases) if shared.phases > 1 else Sentence("one relative start")
    note = Sentence(
        "Means over {phases}; every traffic repeats. All else in this report is of {job} alone.",
        phases=phases, job=shared.traffics[0].name,
    )  # fmt: skip
    return (*blocks, Lines((note,), mood="soft"))


def sharing_sentence(sharing: Sharing) -> str:
    """What the other traffic costs the job's step."""
    job, *others = sharing.traffics
    listed = quote(others[0].name) if len(others) == 1 else Sentence("{count} others", count=len(others))
    if len(others) == 2:
        listed = Sentence("{first} and {second}", first=others[0].name, second=others[1].name)
    more = job.mean_s - job.alone_s
    if abs(more) < 5e-4 * job.alone_s:
        return Sentence("Beside {others} a step takes as long as alone ({time}).", others=listed, time=say.seconds(job.alone_s))
    text = (
        "Beside {others} a step takes {time}, {more} ({share}) more than alone; the longest of {count} took {longest}."
        if more > 0
        else "Beside {others} a step takes {time}, {more} ({share}) less than alone; the longest of {count} took {longest}."
    )
    return Sentence(
        text, others=listed, time=say.seconds(job.mean_s), more=say.seconds(abs(more)), share=f"{abs(more) / job.alone_s:.1%}",
        count=f"{job.steps:,}", longest=say.seconds(job.worst_s),
    )  # fmt: skip


def _traffic_cells(traffic: SharedTraffic) -> tuple[Cell, ...]:
    name: str = say.clean(traffic.name)
    if traffic.kind != "job":
        name = Sentence("{name} ({kind})", name=name, kind=Sentence(_WHAT[traffic.kind]))
    slower = f"{traffic.slowdown - 1.0:+z.1%}" if traffic.steps else Sentence("not counted")
    times = (Cell(say.seconds(value), value) for value in (traffic.alone_s, traffic.mean_s, traffic.worst_s))
    return (Cell(name), Cell(traffic.nodes.removeprefix("nodes:") or "-"), *times, Cell(slower, traffic.slowdown))


def _link_cells(link: SharedLink) -> tuple[Cell, ...]:
    asked = ", ".join(f"{say.clean(name)} {say.percent(share, 0)}" for name, share in link.asked.items())
    return (
        Cell(say.clean(link.name)), Cell(say.rate(link.rate), link.rate), Cell(say.percent(link.load, 0), link.load), Cell(asked),
    )  # fmt: skip


def saving_sentence(saving: SaveCost) -> str:
    """What a save on the compute fabric costs."""
    took = Sentence(
        "A save of {size} to {servers} on the fabric takes {time}",
        size=say.size(saving.bytes), servers=say.count_words(saving.servers, "storage server"), time=say.seconds(saving.beside_s),
    )  # fmt: skip
    if abs(saving.beside_s - saving.alone_s) > 5e-3 * saving.alone_s:
        took = Sentence("{took} ({alone} without training)", took=took, alone=say.seconds(saving.alone_s))
    return Sentence(
        "{took}; a step takes {step} meanwhile, {share}.",
        took=took, step=say.seconds(saving.step_time_s), share=f"{saving.slowdown:+.1%}",
    )  # fmt: skip
