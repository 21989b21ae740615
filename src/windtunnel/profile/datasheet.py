"""The description of a dataset's device: names, versions, and a measured data sheet if the catalogue has none."""

from __future__ import annotations

from windtunnel.profile import power
from windtunnel.profile.device import Device
from windtunnel.profile.kernels.copy import case as copy_case
from windtunnel.profile.kernels.gemm import product
from windtunnel.profile.kernels.scope import Scope
from windtunnel.profile.timing import Protocol
from windtunnel.records import About

PRODUCT = {True: (8192, 4096), False: (512,)}
"""Sizes of the square GEMMs that are timed, on a GPU and on a CPU."""

COPIED = {True: 2**29, False: 2**24}
"""Elements of the copy that measures memory bandwidth."""

FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8")


def about(device: Device, meter: power.Silent | power.Nvml | power.Smi | None = None, measure_sheet: bool = True) -> About:
    """`About` of this device and this PyTorch. Measuring the data sheet of a device outside the catalogue takes about a second."""
    settings = {"threads": str(device.torch.get_num_threads())} if not device.cuda else {}
    return About(
        gpu=device.gpu,
        device=device.name,
        architecture=device.architecture,
        driver=power.driver(meter) if meter is not None else "",
        libraries=device.libraries(),
        datasheet=sheet(device) if measure_sheet and not device.in_catalogue else {},
        settings=settings,
        source="measured by windtunnel profile",
        licence="Apache-2.0",
        notes=describe_empty_columns(device, meter) if meter is not None else "",
    )


def sheet(device: Device) -> dict[str, float]:
    """Best GEMM rate of each format (peak.<dtype>, FLOP/s), best copy rate (memory_bandwidth, B/s), cache and memory (B), SMs."""
    from windtunnel.profile.kernels import Unavailable
    from windtunnel.profile.sweep import time_case

    quick = Protocol(warmup=3, repeats=5, most_seconds=0.2, flush=False)
    facts = {"l2": float(device.l2), "memory": float(device.memory), "sms": float(device.sms)}
    scope = Scope((), cuda=device.cuda)
    for dtype in FORMATS:
        for side in PRODUCT[device.cuda]:
            case = product(scope, "square", "forward", side, side, side, dtype, 0.0, None)
            try:
                rate = float(case.flops or 0.0) / time_case(case, device, protocol=quick).seconds_min
            except (Unavailable, RuntimeError):
                continue
            facts[f"peak.{dtype}"] = max(rate, facts.get(f"peak.{dtype}", 0.0))
    copied = copy_case("device_copy", COPIED[device.cuda], "bf16", None, 0.0)
    facts["memory_bandwidth"] = float(copied.bytes or 0.0) / time_case(copied, device, protocol=quick).seconds_min
    device.forget()
    return facts


def describe_empty_columns(device: Device, meter: power.Silent | power.Nvml | power.Smi) -> str:
    """Which columns a file of this device leaves empty, and why."""
    said = [
        "gap_seconds, saved_bytes of kernels alone: layers have them",
        "checked_against, max_error of eager kernels: compiled ones are compared with them",
    ]
    if isinstance(meter, power.Silent):
        what = "no NVML and no nvidia-smi here" if device.cuda else "a CPU has no NVML"
        said.append(f"power_w, energy_j, clock_hz, throttled: {what}")
    elif isinstance(meter, power.Smi):
        said.append("energy_j: nvidia-smi has no energy counter (pip install nvidia-ml-py)")
    if not device.cuda:
        said.append("reserved_bytes, and peak_bytes of kernels: PyTorch's CPU allocator does not count")
        said.append("host_seconds, and kernel, launches of kernels: host and device are one, which launches none")
    return f"not filled: {'; '.join(said)}"
