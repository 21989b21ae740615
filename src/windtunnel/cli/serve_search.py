"""`windtunnel serve-search MODEL --on CLUSTER`."""

from __future__ import annotations

import shlex
from dataclasses import replace

from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.serving.options import ServeSearchOptions, settings_words

EXAMPLES = """\b
Examples:
  windtunnel serve-search llama3.1-70b --on h100-ib --weights fp8 --isl 4096 --osl 1024 --ttft 2 --tpot 0.03
  windtunnel serve-search llama3.1-70b --on h100-ib --weights fp8 --isl 8192 --osl 512 --ttft 3 --tpot 0.02 --prefill
  windtunnel serve-search start.sh --on h100-ib --isl 4000 --osl 500 --all-users 50 --ttft 2s --tpot 40ms
  windtunnel serve-search deepseek-v3 --on b200-ib --gpus 16 --engine sglang,trtllm --weights fp8,nvfp4
"""


@command_of(ServeSearchOptions)
def command(options: ServeSearchOptions, outputs: Outputs) -> None:
    from windtunnel.api.serving import answer_search, take_line
    from windtunnel.serving.front_sheet import front_sheet

    options = take_line(options)
    with bar(f"serving {options.model}") as progress:
        found = answer_search(replace(options, progress=progress))
    shared = [str(options.model), "--on", str(options.on), "--isl", str(options.isl), "--osl", str(options.osl)]
    shared += settings_words(options)
    sets = [word for text in options.overrides for word in ("--set", text)]
    asked = [shlex.quote(word) for word in [*shared, "--seed", str(options.seed), *sets]]
    outputs.show(front_sheet(found, asked), found.as_dict)
