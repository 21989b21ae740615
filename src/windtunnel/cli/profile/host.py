"""`windtunnel profile host PRESET|CAPTURED|-- COMMAND…`."""

from __future__ import annotations

from windtunnel.capture.options import HostOptions
from windtunnel.cli.shared.common import notes
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel profile host fsdp2 -o host.toml        then: windtunnel predict JOB --set runtime.host=host.toml
  windtunnel profile host captured --framework huggingface
  windtunnel profile host --framework nemo -- torchrun --nproc-per-node 8 train.py
"""


@command_of(HostOptions)
def command(asked: HostOptions, outputs: Outputs) -> None:
    from windtunnel.capture.host import profile_host
    from windtunnel.capture.host_sheet import host_sheet

    tell = (lambda text: None) if outputs.quiet else lambda text: notes().print(text, markup=False)
    found = profile_host(**{**vars(asked), "progress": tell})
    outputs.show(host_sheet(found), found.as_dict)
