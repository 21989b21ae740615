"""What `flows` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.fidelity import CLOSED, FIDELITIES
from windtunnel.base.options import option
from windtunnel.network.flows.run import NICS, ROUTINGS, UNTIL
from windtunnel.network.simulate.packet_settings import RECOVERIES, PacketSettings

_FLOWS = "File with the columns src,dst,bytes,start_s, or permutation:..., incast:..., all_to_all:..., ring:..."


@dataclass(frozen=True)
class FlowsOptions:
    """What plain flows are asked with."""

    fabric: str = option("Builder such as fat_tree:k=16,link=400Gb/s, name, or file.", short="-f", metavar="FABRIC")
    flows: str = option(_FLOWS, metavar="CSV|PATTERN")
    network: str = option(", ".join(FIDELITIES), CLOSED, choices=tuple(FIDELITIES))
    _: KW_ONLY
    routing: str = option(", ".join(ROUTINGS), "ecmp")
    nic: str = option(f"NICs between servers, as NCCL picks them: {', '.join(NICS)}", "nearest")
    cc: str = option("packet: congestion control: dcqcn:rai=40Mb/s.", "dcqcn", metavar="NAME")
    seed: int = option("Seed of every hash and random draw.", 1, least=0)
    threads: int = option("packet: threads; the result is the same for any number.", 1)
    mtu: int = option("Payload of a full packet.", 4096, metavar="SIZE", reads="size")
    until: str = option(f"When a flow is complete: {', '.join(UNTIL)}", "acked")
    faults: Sequence[str] = option(
        "spine3:down or leaf*--spine*:slow=0.5,share=1%; repeatable.", (), word="--fault", metavar="PATTERN:EFFECT"
    )
    packet: PacketSettings | None = option("All settings of packets, in place of `cc` and `threads`.", None, shown=False)
    progress: Callable[[float], bool] | None = option(
        "Called with the share that is done; ends the run where it returns true.", None, shown=False
    )


@dataclass(frozen=True)
class FlowsCommandOptions(FlowsOptions):
    """The same for the command line, which has a word for each setting of packets."""

    pfc: bool = option("packet: full switches send pauses (PFC), or drop packets.", True, word="--pfc/--no-pfc")
    credits: bool = option("packet: InfiniBand's credits instead of PFC.", False)
    recovery: str = option(f"packet: {', '.join(RECOVERIES)}", "")
    buffer: int = option("packet: buffer of a switch, shared by its ports.", "32MB", metavar="SIZE", reads="size")
    xoff: int | None = option(
        "packet: queue length at which an ingress sends a pause; default: dynamic.", None, metavar="SIZE", reads="size"
    )
    xon: int | None = option("packet: with --xoff: queue length at which it resumes.", None, metavar="SIZE", reads="size")
    header: int = option("packet: bytes on the wire besides the payload.", 0)
    ack_every: int = option("packet: packets per ACK.", 1)
    flap: Sequence[str] = option("packet: tor0--agg0.1:down=10us,up=2ms; repeatable.", (), metavar="PATTERN:TIMES")
    convergence: float = option("packet: time until routing avoids a failed link.", "1ms", metavar="TIME", reads="duration")
    series: str | None = option(
        "packet: queues, rates, pauses and CNPs over time, as .csv or .json.", None, metavar="FILE", writes=True
    )
    sample: str = option("packet: time between two samples of --series.", "10us", metavar="TIME")
    watch: int = option("packet: how many of the busiest links and first flows --series holds.", 32)
    skip: bool = option("", False, hidden=True)
