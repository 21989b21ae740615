"""From a step time to tokens per day, days, dollars, joules and CO2.

`Tariff` is what a cluster costs and draws by the hour. It holds for every plan on the cluster, so that a search makes it once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import SpecError
from windtunnel.predict.answer.power import ClusterWatts, cluster_watts, draw_of, gpu_watts, network_of, step_shares
from windtunnel.spec import Cluster, Job
from windtunnel.spec.loading.load import load_region
from windtunnel.spec.machine import Region

DAY = 86400.0
HOUR = 3600.0
KWH = 3.6e6
YEAR_HOURS = 8766.0
"""Hours of a mean year."""

USUAL_REGION = "united-states"
"""Grid of a cluster that states none."""


@dataclass(frozen=True)
class Tariff:
    """What a cluster costs by the hour, whatever it does, and what its power costs.

    `dollars_per_hour`: by part, without power where that is paid apart; None if the cluster states no price. `dollars_per_kwh`: 0
    where the rent includes it.
    """

    cluster: Cluster
    dollars_per_hour: Mapping[str, float] | None
    dollars_per_kwh: float
    g_co2_per_kwh: float


@dataclass(frozen=True)
class RunPrice:
    """Dollars by part and in all (None without a price), joules by part and in all, kg of CO2 of a run, or of a step."""

    cost_parts: dict[str, float] | None
    energy_parts: dict[str, float] | None
    carbon_kg: float | None

    @property
    def cost(self) -> float | None:
        return None if self.cost_parts is None else sum(self.cost_parts.values())

    @property
    def energy_j(self) -> float | None:
        return None if self.energy_parts is None else sum(self.energy_parts.values())


@dataclass(frozen=True)
class Bill:
    """Time, power, energy, price and CO2 of a step, and of the whole run if the job states its tokens. None if the job or cluster
    states no input for it."""

    energy_j_per_step: float | None
    cost_per_step: float | None
    carbon_kg_per_step: float | None
    days: float | None
    cost: float | None
    energy_j: float | None
    carbon_kg: float | None
    cost_parts: dict[str, float] | None
    energy_parts: dict[str, float] | None
    gpu_power_w: float | None
    node_power_w: float | None
    power_w: float | None


def region_of(cluster: Cluster) -> Region:
    """The cluster's grid, or USUAL_REGION."""
    return cluster.region or _usual_region()


@functools.cache
def _usual_region() -> Region:
    return load_region(USUAL_REGION)


def tariff_of(cluster: Cluster) -> Tariff:
    """The tariff of a cluster. SpecError if it is bought and no price of a node is known."""
    region, economics = region_of(cluster), cluster.economics
    if economics.mode == "rent":
        rent = None if cluster.price_per_gpu_hour is None else {"rent": cluster.gpus * cluster.price_per_gpu_hour}
        return Tariff(cluster, rent, 0.0, region.g_co2_per_kwh)
    per_kwh = economics.dollars_per_kwh if economics.dollars_per_kwh is not None else region.dollars_per_kwh
    if per_kwh is None:
        raise SpecError(
            "cluster.economics.dollars_per_kwh", None, "a price of power", f"Region {region.id} states none; write one with --set."
        )
    owned = _owned_rates(cluster)
    if not math.isfinite(sum(owned.values())):
        raise SpecError("cluster.economics", max(owned, key=lambda part: owned[part]), "prices and times whose sum is finite")
    return Tariff(cluster, owned, per_kwh, region.g_co2_per_kwh)


def _owned_rates(cluster: Cluster) -> dict[str, float]:
    """Dollars an hour of a bought cluster by part, without power."""
    economics, node = cluster.economics, cluster.node
    each = economics.node_dollars if economics.node_dollars is not None else node.dollars
    if each is None:
        raise SpecError(
            "cluster.economics.node_dollars",
            None,
            "a price: node " + repr(node.id) + " states none",
            "Write --set cluster.economics.node_dollars=300000.",
        )
    nodes = cluster.gpus / node.gpus
    network = network_of(cluster)
    used = YEAR_HOURS * economics.utilisation
    wear = (1.0 - economics.residual) / (economics.life_years * used)
    kilowatts = nodes * _stated_watts(cluster) / 1e3
    return {
        "nodes": nodes * each * wear,
        "network": (network.switches * economics.switch_dollars + network.links * economics.link_dollars) * wear,
        "storage": cluster.gpus * economics.storage_dollars_per_gpu * wear,
        "space": kilowatts * economics.space_dollars_per_kw_month * 12.0 / used,
        "people": cluster.gpus * economics.people_dollars_per_gpu_year / used,
    }


def _stated_watts(cluster: Cluster) -> float:
    """Power for which a node's place is rented: its stated maximum, or GPUs and the rest at full load."""
    node = cluster.node
    draw = draw_of(node)
    rest = draw.host_w + draw.switches_w + draw.nic_w * (node.nic.count if node.nic else 0) + draw.fans_w
    return node.power_w or ((node.gpu.power_w or 0.0) * node.gpus + rest) / draw.psu_efficiency


def run_price(tariff: Tariff, watts: ClusterWatts | None, days: float) -> RunPrice:
    """Price, energy and CO2 of `days` of a cluster that draws `watts` in the mean; `days` may include failures and restarts."""
    hours = days * 24.0
    if watts is None:
        parts = None if tariff.dollars_per_hour is None or tariff.dollars_per_kwh else _times(tariff.dollars_per_hour, hours)
        return RunPrice(parts, None, None)
    energy = _times(asdict(watts), hours * HOUR)
    kwh = sum(energy.values()) / KWH
    cost = None
    if tariff.dollars_per_hour is not None:
        power = {"power": kwh * tariff.dollars_per_kwh} if tariff.dollars_per_kwh else {}
        cost = _times(tariff.dollars_per_hour, hours) | power
    return RunPrice(cost, energy, kwh * tariff.g_co2_per_kwh / 1e3)


def _times(parts: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: value * factor for name, value in parts.items()}


def bill(job: Job, step: float, tokens: float, stages: Sequence[Mapping[str, float]]) -> Bill:
    """Dollars, joules, CO2 and days of steps of `step` seconds and `tokens` tokens, without failures and restarts.

    `stages`: the breakdown of every pipeline stage, which says what its GPUs do.
    """
    cluster = job.cluster
    gpu = gpu_watts(cluster, step_shares(stages))
    watts = None if gpu is None else cluster_watts(cluster, gpu)
    tariff = tariff_of(cluster)
    one = run_price(tariff, watts, step / DAY)
    if not math.isfinite((one.energy_j or 0.0) + (one.cost or 0.0) + (one.carbon_kg or 0.0)):
        raise SpecError("cluster", cluster.id, "watts and prices whose energy and cost of a step are finite")
    steps = job.tokens / tokens if job.tokens is not None else None
    if steps is not None and not math.isfinite(steps * max(step, one.energy_j or 0.0, one.cost or 0.0)):
        raise SpecError("tokens", job.tokens, "a number of tokens whose time, energy and price are finite")
    days = step * steps / DAY if steps is not None else None
    run = None if days is None else run_price(tariff, watts, days)
    node = None if watts is None else (watts.gpus + watts.hosts + watts.supplies) / cluster.gpus * cluster.node.gpus
    return Bill(
        one.energy_j,
        one.cost,
        one.carbon_kg,
        days,
        run.cost if run else None,
        run.energy_j if run else None,
        run.carbon_kg if run else None,
        (run or one).cost_parts,
        (run or one).energy_parts,
        gpu,
        node,
        watts.total if watts else None,
    )
