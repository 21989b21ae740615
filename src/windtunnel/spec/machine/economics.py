"""What a cluster costs beside rent: capital, power, space, people; and the region that its power comes from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.spec.common import Fraction, Name, NonNegativeFloat, Noun, PositiveFloat


class Region(Noun):
    """A power grid. `g_co2_per_kwh`: life-cycle grams of CO2 equivalents of a kWh generated in `year`."""

    id: Name
    name: str = ""
    g_co2_per_kwh: NonNegativeFloat
    dollars_per_kwh: NonNegativeFloat | None = Field(default=None, description="price for industry, with network fees")
    year: int = Field(ge=1990, le=2100, strict=True)
    source: str = ""


class Economics(Noun):
    """How a cluster is paid, in US dollars. The rent is `cluster.price_per_gpu_hour`.

    Bought: capital less `residual` is spread over `life_years` and over the share `utilisation` of all hours that someone uses; so
    are space and people. Defaults are figures of 2024 for an H100 cluster; SHEET is the cost table of tech-talk-cto's "H100
    Freakonomics".
    """

    mode: Literal["rent", "buy"] = "rent"
    node_dollars: PositiveFloat | None = Field(default=None, description="a node with its NICs; default: the node's own")
    switch_dollars: NonNegativeFloat = Field(default=36_000.0, description="64 x 400 Gb/s: FS.com, Aug 2024, in SHEET")
    link_dollars: NonNegativeFloat = Field(
        default=1_280.0, description="both transceivers: $2.62 million for 1,024 NICs in two tiers, Aug 2024, in SHEET"
    )
    storage_dollars_per_gpu: NonNegativeFloat = Field(default=1_500.0, description="assumed: 3 % of $50,000 a GPU")
    storage_w_per_gpu: NonNegativeFloat = Field(default=20.0, description="assumed: a server of 2 kW for 100 GPUs")
    life_years: PositiveFloat = Field(
        default=4.0, le=50, description="straight line; hyperscalers' annual reports of 2024 state 4 to 6 years, from memory"
    )
    residual: float = Field(
        default=0.1, ge=0, le=1, allow_inf_nan=False, strict=True, description="share of the price left at the end; assumed"
    )
    dollars_per_kwh: NonNegativeFloat | None = Field(default=None, description="default: the region's")
    space_dollars_per_kw_month: NonNegativeFloat = Field(
        default=184.0, description="colocation of a kW of stated power, without energy: CBRE, North America, 2024, from memory"
    )
    people_dollars_per_gpu_year: NonNegativeFloat = Field(
        default=500.0, description="assumed: an engineer at $250,000 a year for 500 GPUs"
    )
    utilisation: Fraction = Field(default=0.9, description="share of all hours in which the cluster is used; assumed")
    source: str = ""
