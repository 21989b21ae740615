"""What a framework's host costs: its own step run without a GPU, as the constants that predictions read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.base.options import asks
from windtunnel.capture.host_times import HostPart, HostTimes, host_times
from windtunnel.capture.options import HostOptions
from windtunnel.capture.run import capture
from windtunnel.records.capture_file import captured_files, read_captured
from windtunnel.spec.loading.load import load_cluster, load_runtime
from windtunnel.spec.loading.toml import toml_lines

FRAMEWORKS = {"fsdp2": "torchtitan", "fsdp": "fsdp", "huggingface": "huggingface", "deepspeed": "deepspeed"}
"""Preset -> the framework of the catalogue whose host it is."""
DRIVER = 2.5e-6
"""Seconds of a launch in the driver, as in a capture's own replay (`formats/traces/captured.py`)."""


@dataclass(frozen=True)
class FrameworkHost:
    """The host of a framework. `times`: of the step as it was run; `whole`: of the same without sharded parameters, for a preset.

    `launch`, `collective`: seconds of the framework's entry in the catalogue, which stay; what is measured beyond them is the
    layer's. `host_speed`: of the machine that measured.
    """

    what: str
    framework: str
    times: HostTimes
    whole: HostTimes | None
    launch: float
    collective: float
    host_speed: float

    @property
    def constants(self) -> dict[str, float]:
        """Seconds of `runtime.host` at a host_speed of 1. Without a run of whole parameters, `layer` holds what sharding adds."""
        layer = self._of_pass(self.times)
        plain = layer if self.whole is None else self._of_pass(self.whole)
        seconds = {
            "launch": self.launch, "layer": plain, "sharded": max(0.0, layer - plain),
            "micro_batch": self._beyond(self.times.rest) / 2.0, "step": self._beyond(self.times.update),
            "collective": max(self.collective, self.times.call * self.host_speed),
        }  # fmt: skip
        return {name: float(f"{value:.3g}") for name, value in seconds.items()}

    def _of_pass(self, times: HostTimes) -> float:
        """Of a layer and pass, the mean of both."""
        return (self._beyond(times.forward) + self._beyond(times.backward)) / 2.0

    def _beyond(self, part: HostPart) -> float:
        """Seconds that launches and calls, which are priced apart, do not explain."""
        seconds = (part.seconds - self.times.call * part.calls) * self.host_speed
        return max(0.0, seconds - (self.launch - DRIVER) * part.kernels)

    @property
    def source(self) -> str:
        """Where the constants are from."""
        ahead, back = self.times.forward, self.times.backward
        speed = f"with a host_speed of {self.host_speed:g}" if self.host_speed != 1.0 else "taken as a host_speed of 1"
        return (
            f"measured by `windtunnel profile host {self.what}` with PyTorch {self.times.torch} on {self.times.processor}, "
            f"{speed}: a layer takes {1e3 * ahead.seconds:.2f} ms forward for {ahead.kernels:.0f} kernels and "
            f"{1e3 * back.seconds:.2f} ms backward for {back.kernels:.0f}, and the driver {1e6 * DRIVER:g} us a launch; costs of a "
            f"launch and a call are those of {self.framework} in the catalogue" + "".join(f"; {note}" for note in self.times.notes)
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON: stable keys, SI units."""
        return {
            "schema": "windtunnel.host/1", "what": self.what, "framework": self.framework, "host_speed": self.host_speed,
            "measured": asdict(self.times), "whole": None if self.whole is None else asdict(self.whole), "host": self.constants,
            "source": self.source,
        }  # fmt: skip

    def write(self, path: str | Path) -> None:
        """A file for `--set runtime.host=FILE`. FileError if it cannot be written."""
        try:
            Path(path).write_text("\n".join(toml_lines({**self.constants, "source": self.source})) + "\n", encoding="utf-8")
        except OSError as error:
            raise FileError(str(path), error.strerror or str(error), "a file that can be written") from error


@asks(HostOptions)
def profile_host(asked: HostOptions) -> FrameworkHost:
    """Host seconds of a framework's step: from a preset, a script, or what `capture` wrote of one, on the capture's device.

    Kernels cost nothing there; what the device adds is measured and taken off. A preset runs twice, with whole and with sharded
    parameters. Needs PyTorch's build for CPUs. SpecError for a step without numbered layers, EngineError for a script that raises.
    """
    what = list(asked.what)
    preset = FRAMEWORKS.get(what[0]) if len(what) == 1 else None
    framework = asked.framework or preset or "torchtitan"
    known = load_runtime(framework).host
    files = captured_files(what) if preset is None else []
    whole = None
    if files:
        times = host_times(read_captured(files[0]))
    elif preset is not None:
        command = ["torchrun", "-m", "windtunnel.capture.presets", what[0]]
        times, whole = _run(command, asked), _run([*command, "--whole"], asked)
    elif len(what) == 1 and not what[0].endswith(".py"):
        raise UnknownName("WHAT", what[0], (*FRAMEWORKS, "a folder of `windtunnel capture`", "a command after --"))
    else:
        times = _run(what, asked)
    found = FrameworkHost(" ".join(what), framework, times, whole, known.launch, known.collective, asked.host_speed)
    if asked.out is not None:
        found.write(asked.out)
    return found


def _run(command: list[str], asked: HostOptions) -> HostTimes:
    """The times of rank 0."""
    if not command:
        raise SpecError("WHAT", "nothing", ", ".join(FRAMEWORKS), "Type: windtunnel profile host fsdp2")
    cluster = load_cluster(asked.cluster, [f"gpus={asked.gpus}"])
    with TemporaryDirectory() as folder:
        done = capture(command, cluster, Path(folder), steps=asked.steps, ranks=[0], progress=asked.progress)
        return host_times(done.ranks[0])
