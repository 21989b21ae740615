"""`windtunnel serve-search MODEL --on CLUSTER`."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace

from windtunnel.base.options import options_of
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.serving.options import ServeSearchOptions

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
    shared += _settings_words(options)
    sets = [word for text in options.overrides for word in ("--set", text)]
    asked = [shlex.quote(word) for word in [*shared, "--seed", str(options.seed), *sets]]
    outputs.show(front_sheet(found, asked), found.as_dict)


def _settings_words(options: ServeSearchOptions) -> list[str]:
    """What the options say of every copy beside its plan and formats, as words of `serve-predict`."""
    from windtunnel.serving.engine import EngineSettings

    names, words = {"attention_weights", "max_model_len", *(one.name for one in fields(EngineSettings))}, []
    for one in options_of(ServeSearchOptions):
        value = getattr(options, one.name)
        if one.name in names and value != one.default:
            words += [one.word] if one.kind == "flag" else [one.word, str(value)]
    return words
