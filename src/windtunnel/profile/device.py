"""The device under measurement: PyTorch's CUDA (NVIDIA, or AMD through ROCm) or the CPU, behind one interface.

Only this module imports PyTorch; kernels use it as `device.torch`.
"""

from __future__ import annotations

import platform
import time
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.processes import count_cores
from windtunnel.base.processor import processor_name
from windtunnel.spec import match_gpu

CHOICES = ("auto", "cuda", "rocm", "cpu")

DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
"""Number formats of datasets -> PyTorch's. tf32 is fp32 data on tensor cores."""

CPU_CACHE = 32 * 2**20
"""B. Assumed size of the last-level cache if the operating system does not state it."""

CORE_CACHE = 2 * 2**20
"""B. The same of a core's own cache."""

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""Environment in which glibc keeps what a process has freed (mallopt(3)). Else it gives memory back beyond a threshold that moves
with what was freed before, and whether a kernel or a step touches new pages, each a fault of microseconds, is chance."""


class Device:
    """One device. `kind`: PyTorch's name (cuda or cpu); `backend`: cuda, rocm or cpu."""

    def __init__(self, torch: Any, kind: str, index: int = 0) -> None:
        self.torch, self.kind, self.index = torch, kind, index
        self.cuda = kind == "cuda"
        self.backend = "cpu" if not self.cuda else "rocm" if torch.version.hip else "cuda"
        self.place = torch.device(kind, index) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(index)

    # -- properties -------------------------------------------------------------------------------------------------

    @cached_property
    def name(self) -> str:
        """Name printed by the driver."""
        return str(self.torch.cuda.get_device_name(self.index)) if self.cuda else processor_name()

    @cached_property
    def gpu(self) -> str:
        """Catalogue id if the catalogue knows the driver's name, else an id made from that name."""
        try:
            return match_gpu(self.name).id
        except UnknownName:
            words = "".join(c if c.isalnum() or c == "." else " " for c in self.name.lower()).split()
            name = "-".join(words[:6])
            return name if self.cuda else f"cpu-{name}"

    @cached_property
    def in_catalogue(self) -> bool:
        """Whether its data sheet is in the catalogue."""
        try:
            match_gpu(self.name)
        except UnknownName:
            return False
        return True

    @cached_property
    def architecture(self) -> str:
        """Architecture: the catalogue's name, else sm_90, gfx942 or the CPU's instruction set."""
        if self.in_catalogue:
            return match_gpu(self.name).architecture
        if not self.cuda:
            return platform.machine()
        properties = self.torch.cuda.get_device_properties(self.index)
        return str(getattr(properties, "gcnArchName", "")) if self.backend == "rocm" else f"sm_{properties.major}{properties.minor}"

    @cached_property
    def l2(self) -> int:
        """Size of the last-level cache, B."""
        if not self.cuda:
            return min(max(_cache_sizes(CACHES), default=CPU_CACHE), 4 * CPU_CACHE)
        properties = self.torch.cuda.get_device_properties(self.index)
        return int(getattr(properties, "L2_cache_size", 0)) or 64 * 2**20

    @cached_property
    def sms(self) -> int:
        """Multiprocessors, compute units or cores."""
        return int(self.torch.cuda.get_device_properties(self.index).multi_processor_count) if self.cuda else count_cores()

    @property
    def memory(self) -> int:
        """Total memory, B."""
        return int(self.torch.cuda.get_device_properties(self.index).total_memory) if self.cuda else host_memory("MemTotal")

    def free(self) -> int:
        """Free memory, B, including what the allocator has reserved."""
        if not self.cuda:
            return host_memory("MemAvailable")
        reserve = self.torch.cuda.memory_reserved() - self.torch.cuda.memory_allocated()
        return int(self.torch.cuda.mem_get_info(self.index)[0] + reserve)

    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that run the kernels."""
        torch = self.torch
        versions = {"torch": str(torch.__version__)}
        if self.cuda:
            versions["rocm" if self.backend == "rocm" else "cuda"] = str(torch.version.hip or torch.version.cuda)
            if torch.backends.cudnn.is_available():
                versions["cudnn"] = str(torch.backends.cudnn.version())
        for name in ("triton", "flash_attn"):
            try:
                versions[name] = str(import_module(name).__version__)
            except (ImportError, AttributeError, OSError):
                continue
        return versions

    # -- running on it ----------------------------------------------------------------------------------------------

    def dtype(self, name: str) -> Any:
        """PyTorch's number format; SpecError if PyTorch lacks it."""
        if name not in DTYPES or not hasattr(self.torch, DTYPES[name]):
            raise SpecError("dtype", name, ", ".join(DTYPES))
        return getattr(self.torch, DTYPES[name])

    def synchronize(self) -> None:
        """Wait until all enqueued work has run."""
        if self.cuda:
            self.torch.cuda.synchronize(self.index)

    def mark(self) -> Any:
        """Mark a point in the work enqueued so far, without waiting.

        On one CPU thread the thread's own time is used, so that time slices of other programs are not measured.
        """
        if not self.cuda:
            return time.thread_time() if self.torch.get_num_threads() == 1 else time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, begin: Any, end: Any) -> float:
        """Seconds between two marks that the device has passed."""
        return float(begin.elapsed_time(end)) * 1e-3 if self.cuda else float(end - begin)

    @cached_property
    def _flush_buffer(self) -> Any:
        evicted = self.l2 if self.cuda else own_cache(CACHES)
        return self.torch.empty(max(1, 2 * evicted // 4), dtype=self.torch.int32, device=self.place)

    def flush(self) -> None:
        """Flush the cache that a step's operands do not stay in: write twice its size. A GPU's last level; of a CPU what is a
        core's own, since its last level holds what the kernel before has written."""
        self._flush_buffer.zero_()

    def sleep(self, seconds: float) -> None:
        """Keep the device busy while the host enqueues the next kernels. Does nothing on a CPU."""
        if self.cuda and seconds > 0 and hasattr(self.torch.cuda, "_sleep"):
            self.torch.cuda._sleep(int(min(seconds, 0.05) * 2e9))

    def forget(self) -> None:
        """Release unused memory and reset the peak counters."""
        if self.cuda:
            with suppress(RuntimeError):  # a failed device cannot release memory; its next use raises the error
                self.torch.cuda.empty_cache()
                self.torch.cuda.reset_peak_memory_stats(self.index)

    def restart_peak(self) -> None:
        """Reset the peak-memory counters."""
        if self.cuda:
            self.torch.cuda.reset_peak_memory_stats(self.index)

    def peak(self) -> tuple[float, float] | None:
        """Peak allocated and reserved memory since `restart_peak`, B; None if the allocator does not count."""
        if not self.cuda:
            return None
        return float(self.torch.cuda.max_memory_allocated(self.index)), float(self.torch.cuda.max_memory_reserved(self.index))

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` means out of memory."""
        kinds = [MemoryError, *([self.torch.OutOfMemoryError] if hasattr(self.torch, "OutOfMemoryError") else [])]
        message = str(error)
        return isinstance(error, tuple(kinds)) or "can't allocate memory" in message or "out of memory" in message


def open_device(name: str = "auto") -> Device:
    """The device `name` (one of CHOICES, or cuda:1). Raises SpecError if PyTorch or the device is missing."""
    word, _, number = name.partition(":")
    if word not in CHOICES or (number and not number.isdigit()):
        raise UnknownName("--device", name, CHOICES)
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise SpecError(
            "--device",
            name,
            "a Python with PyTorch, which measures",
            "Type: pip install 'windtunnel[torch]', or --dry-run to see the plan only.",
        ) from error
    there = bool(torch.cuda.is_available())
    if word == "cpu" or (word == "auto" and not there):
        return Device(torch, "cpu")
    if not there:
        raise SpecError("--device", name, "cpu", f"PyTorch {torch.__version__} sees no GPU here.")
    index = int(number or 0)
    if index >= torch.cuda.device_count():
        raise SpecError("--device", name, f"{word}:0 to {word}:{torch.cuda.device_count() - 1}")
    device = Device(torch, "cuda", index)
    if word == "rocm" and device.backend != "rocm":
        raise SpecError("--device", name, "cuda", "This PyTorch is built for CUDA.")
    return device


def own_cache(caches: Path) -> int:
    """The largest cache below the last level, B, of what the operating system says of a core's caches."""
    sizes = sorted(set(_cache_sizes(caches)))
    return sizes[-2] if len(sizes) > 1 else CORE_CACHE


def _cache_sizes(caches: Path) -> list[int]:
    sizes = []
    for file in sorted(caches.glob("index*/size")):
        text = file.read_text(encoding="utf-8").strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) * (2**10 if text[-1] == "K" else 2**20))
    return sizes


def host_memory(key: str) -> int:
    """A line of /proc/meminfo such as `MemTotal`, B; 0 where the system has no such file."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
