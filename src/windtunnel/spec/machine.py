"""The machine: GPU, node, host memory, fabric, power and cost. The machine: GPU, node, fabric, cluster. What a cluster costs beside
rent: capital, power, space, people; and the region that its power comes from. Memory outside of the GPUs: the host link, a
node's storage and expansion, and a pool that nodes share. What draws power: a GPU by what it does, the rest of a node, a
fabric's switches and optics.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.base.quantities import (
    FlopRate,
    GpuBandwidth,
    LinkBandwidth,
    NicBandwidth,
    NodeBandwidth,
    OwnedBandwidth,
    PortBandwidth,
    Seconds,
    Size,
)
from windtunnel.spec.common import Flag, Fraction, Name, NonNegativeFloat, Noun, PositiveFloat, PositiveInt, PrecisionName
from windtunnel.spec.pcie import nearest_pcie


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


Place = Literal["host", "nvme", "expansion", "pool"]
"""Places for offloaded bytes: the node's DRAM, storage or memory expansion, or the cluster's pool."""


class HostLink(Noun):
    """The link between GPUs and their host's memory: PCIe lanes of one switch, or the chip-to-chip link of one CPU."""

    kind: Literal["pcie", "c2c"] = "pcie"
    bandwidth: LinkBandwidth = Field(description="line rate of one link each way")
    gpus: PositiveInt = Field(default=1, description="GPUs that share one link")
    source: str = ""


class Storage(Noun):
    """Solid-state disks of one node, all together."""

    read: NodeBandwidth
    write: NodeBandwidth
    capacity: Size = Field(gt=0)
    latency: Seconds = 1e-4
    source: str = ""


class MeasuredFiles(Noun):
    """How fast one node, with all its ranks, writes and reads checkpoints and samples where they lie (`windtunnel measure`)."""

    shared: Flag = Field(
        False, description="other nodes reach that file system too: reliability.checkpoint.write and .read bound them all together"
    )
    write: NodeBandwidth | None = Field(None, description="checkpoints, one file of each rank, until they are on the disk")
    read: NodeBandwidth | None = Field(None, description="the same, not from the page cache")
    latency: Seconds = Field(0.0, description="time of a save beside its bytes")
    stage: OwnedBandwidth | None = Field(
        None, description="copy of a rank's state into host memory, for a save; default: over the host link"
    )
    sample: Seconds = Field(
        0.0, description="time of a node for a sample at a random place, not from the page cache, beside its bytes"
    )
    source: str = ""


class Expansion(Noun):
    """Memory that a node has beside its DRAM (CXL), reached over the host link."""

    bandwidth: NodeBandwidth
    capacity: Size = Field(gt=0)
    latency: Seconds = 1e-6
    source: str = ""


class MemoryPool(Noun):
    """A memory that all nodes share (ASTRA-sim 2.0, ISPASS 2023): memory groups behind switches outside the nodes, and a separate
    fabric inside each node. Bytes are spread over all groups.

    With `in_switch_collectives` the switches gather a load of sharded parameters and reduce a store of gradients: data for all
    ranks is read from memory once and copied in the switches.
    """

    ports: PositiveInt = Field(description="remote memory groups")
    bandwidth: PortBandwidth = Field(description="bandwidth of one group, each way")
    gpu_bandwidth: OwnedBandwidth = Field(description="bandwidth of the pool's fabric inside a node, per GPU and each way")
    node_bandwidth: NodeBandwidth | None = Field(None, description="bandwidth of a node to the pool; default: that of all its GPUs")
    latency: Seconds = 2e-6
    capacity: Size = Field(gt=0, description="capacity of all groups together")
    in_switch_collectives: Flag = False
    source: str = ""


class GpuDraw(Noun):
    """Shares of a GPU's `power_w` by what it does, where they differ from those of `catalog/calibration/power.toml`."""

    tensor: Fraction | None = Field(default=None, description="matrix products and attention")
    memory: Fraction | None = Field(default=None, description="kernels bound by memory")
    communicating: Fraction | None = Field(default=None, description="inside a call that moves data")
    waiting: Fraction | None = Field(default=None, description="inside a call whose partners are late")
    static: Fraction | None = Field(default=None, description="while nothing runs")
    floor: Fraction | None = Field(default=None, description="share of the clock below which the voltage no longer falls")
    knee: Fraction | None = Field(default=None, description="share of the clock from which kernels bound by memory slow down")
    source: str = ""


class NodeDraw(Noun):
    """Watts of a node beside its GPUs while it trains, before losses of the power supplies."""

    host_w: NonNegativeFloat = Field(description="processors, memory, disks, board")
    switches_w: NonNegativeFloat = Field(default=0.0, description="scale-up and PCIe switches")
    nic_w: NonNegativeFloat = Field(default=0.0, description="one NIC with its transceiver")
    fans_w: NonNegativeFloat = Field(default=0.0, description="fans at full GPU power; they follow it")
    psu_efficiency: Fraction = Field(
        default=0.96, description="power out over power in; 80 PLUS Titanium at half load, where redundant supplies run: 96 %"
    )
    source: str = ""


class SwitchDraw(Noun):
    """Switches of a scale-out fabric: one `switch_w` for `ports` NICs, and `optic_w` for each end of an optical link."""

    ports: int = Field(default=64, ge=2, le=4096, strict=True, description="ports at the rate of a NIC")
    switch_w: NonNegativeFloat = Field(default=750.0, description="Quantum-2 QM9700: 747 W without transceivers, from memory")
    optic_w: NonNegativeFloat = Field(default=9.0, description="MMS4X00-NS400, 400 Gb/s: 9 W (NVIDIA's specification)")
    source: str = ""


GRIDS = ("torus", "mesh", "ndim")
"""Builders of machines with dimensions, on which a step runs."""
_OWN_PORTS = ("ethernet", "ici")  # accelerators whose network ports are on the chip and not behind PCIe


class GPU(Noun):
    """One accelerator as its driver reports it (a GCD of an MI250X is one GPU).

    `peak` is dense FLOP/s by number format; `achievable` the best matmul rate measured on it (MAMF), where known;
    `names` are the strings that the vendor's tool prints, matched whole.
    """

    id: Name
    name: str
    names: tuple[str, ...] = ()
    vendor: Literal["nvidia", "amd", "intel", "google", "huawei", "aws", "other"] = "nvidia"
    architecture: str = Field(description="volta, ampere, hopper, blackwell, cdna3, … : keys the kernel models and NCCL's tables")
    capability: PositiveFloat | None = Field(None, description="compute capability, as PyTorch says it: 9.0")
    peak: dict[PrecisionName, FlopRate]
    achievable: dict[PrecisionName, FlopRate] = {}
    memory: Size = Field(ge=2**20, description="a number without a unit is bytes: 80GiB, 80e9")
    memory_bandwidth: GpuBandwidth
    l2: Size | None = Field(None, gt=0)
    sms: PositiveInt | None = None
    clock_hz: PositiveFloat | None = None
    power_w: PositiveFloat | None = Field(None, description="power limit of the board as sold (TDP)")
    power_cap_w: PositiveFloat | None = Field(None, description="a lower limit that an operator sets: it lowers the clock")
    clock_lock: Fraction | None = Field(None, description="a clock that an operator sets, as a share of that under power_w")
    sustained_rate: FlopRate | None = Field(
        None,
        description="rate of a half-precision product of 8,192 x 8,192 x 8,192, repeated for a minute on this machine (torch.mm, "
        "mamf-finder): its clock under power limit and cooling; default: as published for the GPU",
    )
    draw: GpuDraw | None = Field(None, description="shares of power_w by what the GPU does, where they differ from the stored ones")
    kernels_from: str | None = Field(None, description="id of the GPU whose fitted kernel curves are used")
    source: str = ""
    notes: str = ""


class ScaleUp(Noun):
    """The fast domain inside which GPUs reach each other without a NIC."""

    kind: Literal["nvswitch", "nvlink_mesh", "pcie", "xgmi", "ici", "ethernet"] = "nvswitch"
    size: PositiveInt = Field(description="GPUs in one domain; may span nodes (NVL72)")
    bandwidth: OwnedBandwidth = Field(description="per GPU each way, all its links together")
    links: PositiveInt = 1
    chip: PositiveInt = Field(1, description="devices on one chip of a torus, which share its links (NeuronCores)")
    in_switch_reduction: Flag = Field(False, description="NVLS (NVLink SHARP)")
    source: str = ""


class Nic(Noun):
    """Network interfaces of one node."""

    count: PositiveInt
    bandwidth: NicBandwidth
    latency: Seconds = Field(0.0, description="latency that NCCL's topology file states for the NIC")
    timeouts: tuple[Annotated[Seconds, Field(gt=0)], ...] = Field(
        (), description="adaptive retransmission: timeouts, the last repeats; default: 4.096 us x 2^NCCL_IB_TIMEOUT each time"
    )
    source: str = ""


class Node(Noun):
    """A server: GPUs, scale-up links, NICs, host."""

    id: Name
    name: str = ""
    gpu: GPU
    gpus: PositiveInt = 8
    scale_up: ScaleUp
    nic: Nic | None = None
    pcie_gen: PositiveInt = 4
    cpu_vendor: Literal["intel", "amd", "arm", "other"] = "amd"
    host_memory: Size | None = Field(None, gt=0)
    host_speed: PositiveFloat = Field(
        1.0, description="speed of a CPU thread relative to the CPUs on which the frameworks' host costs were measured"
    )
    host_memory_bandwidth: NodeBandwidth | None = Field(
        None, description="of all sockets; default: two sockets of the generation that goes with pcie_gen"
    )
    host_link: HostLink | None = Field(None, description="default: 16 lanes of pcie_gen per GPU")
    storage: Storage | None = Field(None, description="local solid-state disks")
    files: MeasuredFiles | None = Field(None, description="its checkpoints and samples, as measured where they lie")
    expansion: Expansion | None = Field(None, description="memory beside DRAM (CXL)")
    power_w: PositiveFloat | None = Field(None, description="stated maximum of the node; default: power of its GPUs / 0.6")
    draw: NodeDraw | None = Field(None, description="watts beside the GPUs while it trains; default: a share of the stated maximum")
    dollars: PositiveFloat | None = Field(None, description="price of the node with its NICs, US dollars")
    dollars_source: str = ""
    source: str = ""

    @property
    def domain(self) -> int:
        """GPUs that count as one node for bandwidth: the node, or the scale-up domain where that is larger (NVL72)."""
        return max(self.gpus, self.scale_up.size)

    @property
    def ways_out(self) -> tuple[int, float]:
        """(devices, B/s each way of one) of its NICs: one has as many PCIe lanes as a GPU, or several share those of one; ports on
        the accelerator's chip need none. (0, 0.0) without NICs."""
        if self.nic is None:
            return 0, 0.0
        devices = min(self.nic.count, self.gpus)
        rate = self.nic.count * self.nic.bandwidth / devices
        return devices, rate if self.scale_up.kind in _OWN_PORTS else min(rate, nearest_pcie(self.pcie_gen).peer)


class StorageServers(Noun):
    """Storage servers on the leaves of the compute fabric, in turn."""

    servers: PositiveInt
    bandwidth: NicBandwidth = Field(50e9, description="line rate of a server's link to its leaf")
    source: str = ""


class Fabric(Noun):
    """The scale-out network between nodes."""

    id: Name
    kind: Literal["infiniband", "roce", "efa", "opa", "ethernet", "ici", "none"]
    topology: Literal["fat_tree", "rail", "rail_only", "graph", "none"] = Field(
        "fat_tree", description="rail_only: no switch joins two rails; graph: the switches of `builder`"
    )
    leaf_nodes: PositiveInt = Field(32, description="nodes that share one set of leaf switches")
    pod_nodes: PositiveInt = Field(1024, description="nodes below one set of spine switches")
    oversubscription: PositiveFloat = Field(1.0, description="down-link / up-link bandwidth of a leaf switch")
    pod_oversubscription: PositiveFloat = Field(1.0, description="the same for traffic that leaves a pod")
    nic_ports: int = Field(
        1, ge=1, le=4, strict=True, description="ports of a NIC, each on a leaf of its own (2: dual ToR), sharing its rate"
    )
    planes: int = Field(
        1, ge=1, le=4, strict=True, description="1: all leaves share the spines; otherwise each NIC port has spines of its own"
    )
    uplink_ratio: PositiveFloat = Field(1.0, description="rate of a leaf's up-link / down port (MegaScale: 2)")
    routing: Literal["ecmp", "spray", "adaptive", "flowlet"] | None = Field(
        None, description="choice among equal-cost paths; default: adaptive on InfiniBand, spray on EFA, else ECMP by flow hash"
    )
    congestion: str | None = Field(
        None, description="congestion control, as in `flows --cc`; default: dcqcn on RoCE and Ethernet, else none"
    )
    flows_per_connection: int = Field(
        1, ge=1, le=64, strict=True, description="hash values that one connection spreads over (E-ECMP)"
    )
    builder: str | None = Field(None, description="topology builder with parameters, as in `windtunnel flows --fabric`")
    slices: Flag = Field(False, description="a job gets a part of the torus that `builder` describes, with as many accelerators")
    slice: str | None = Field(None, description="sizes of that part, such as 4x8x8; default: the part nearest to a cube")
    buffer: Size | None = Field(
        None, gt=0, description="shared buffer of a switch; default: what its ports fill in 25.8 us, and at least 32 MB"
    )
    faults: tuple[str, ...] = Field(
        (), description="links that are down, slow, flap or lose packets, as in `predict --fault`; times count from a step's begin"
    )
    nodes: PositiveInt | None = Field(
        None, description="nodes that the fabric connects, other jobs' among them; default: as many as the jobs on it need"
    )
    storage: StorageServers | None = Field(
        None, description="storage servers on this fabric; default: storage has a network of its own, which meets nothing of a step"
    )
    convergence: Seconds = Field(1e-3, description="time until routing avoids a cable that went down")
    hop_latency: Seconds = 1e-6
    efficiency: Fraction = Field(0.92, description="payload rate / line rate inside a leaf")
    ecmp_efficiency: Fraction = Field(1.0, description="factor on it for hash collisions of flows that cross leaves")
    in_network_reduction: Flag = False
    draw: SwitchDraw = SwitchDraw()
    source: str = ""

    @property
    def is_grid(self) -> bool:
        """Whether accelerators are joined to each other along dimensions, without servers and leaves."""
        return self.builder is not None and self.builder.strip().partition(":")[0] in GRIDS


class Achieved(Noun):
    """Factors on the fitted constants of collectives, from calls that were measured on this cluster (`import --cluster`).

    1: as on the machines behind the constants. `launch`: seconds of a call before data moves; `hop`: seconds of a step from GPU to
    GPU; `rate`: bandwidth, of NCCL's Simple protocol, its switch reduction and sends, beside those of LL and LL128; `inside` a
    scale-up domain and `across` the fabric.
    """

    launch: PositiveFloat = 1.0
    inside_hop: PositiveFloat = 1.0
    inside_rate: PositiveFloat = 1.0
    inside_ll_rate: PositiveFloat = 1.0
    inside_ll128_rate: PositiveFloat = 1.0
    across_hop: PositiveFloat = 1.0
    across_rate: PositiveFloat = 1.0
    relative_error: PositiveFloat | None = Field(None, description="of a call's time, on sizes that were left out of the fit")
    source: str = ""


class Cluster(Noun):
    """Nodes on a fabric, with what they cost."""

    id: Name
    name: str = ""
    node: Node
    fabric: Fabric
    gpus: int = Field(ge=1, le=10**7, strict=True, description="published size; a job says how many it uses")
    placement: str | None = Field(
        None,
        description="nodes of the job over flows and packets: packed, leaf, pod, random:SEED, nodes:0-3,8 or list:GPU,...; "
        "default: the first free ones",
    )
    memory_pool: MemoryPool | None = Field(None, description="memory that all nodes share")
    achieved: Achieved | None = Field(None, description="what measured collectives of this cluster achieve")
    price_per_gpu_hour: NonNegativeFloat | None = Field(None, description="US dollars")
    pue: PositiveFloat = Field(1.1, ge=1, description="power of the building over that of its computers")
    economics: Economics = Economics()
    region: Region | None = Field(None, description="power grid, by name; default: united-states")
    gpu_spread: NonNegativeFloat = Field(0.0, description="relative spread (1 sigma) of good GPUs' speed, if it was measured")
    slow_nodes: NonNegativeFloat = Field(0.005, le=1, description="share of slow nodes; 0.5 % in MegaScale (NSDI'24, 5.1)")
    slow_node_factor: PositiveFloat = Field(
        1.1, ge=1, description="time of a slow node / time of a good one: about 10 % longer (same source)"
    )
    source: str = ""

    @property
    def gpu(self) -> GPU:
        return self.node.gpu

    @property
    def domain(self) -> int:
        """GPUs of a job in one scale-up domain. Schedulers fill domains evenly (Slurm's `--segment`): 256 GPUs take 64 of the 72 of
        four NVL72, and no group of 64 ranks straddles. The last domain is part-filled where nothing near divides the GPUs."""
        whole, node = self.node.domain, self.node.gpus
        if self.gpus > whole > node and self.gpus % whole:
            least = -(-self.gpus // whole)
            for domains in range(least, least + least // 4 + 1):
                if self.gpus % (domains * node) == 0:
                    return self.gpus // domains
        return whole

    @property
    def gpus_of_node(self) -> int:
        """GPUs of one node that are in use."""
        return min(self.node.gpus, self.gpus)
