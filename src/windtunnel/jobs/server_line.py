"""A server that a line, a script or a manifest starts, in place of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import without_gz
from windtunnel.jobs.described import LONGEST

if TYPE_CHECKING:
    from windtunnel.formats.jobs.servers.launch import LaunchedServer

_TABLES = (".json", ".toml")
"""Files that describe a model."""
_TYPED = "windtunnel serve-predict MODEL --on CLUSTER --tp N --weights FORMAT --concurrency N"
"""How a server is stated without a line."""
WANTED = "a line that starts vLLM, SGLang, TensorRT-LLM, Dynamo, LMDeploy or TGI, or a model"


def launched_server(source: Any) -> LaunchedServer | None:
    """The server that a file, a script with what it is started with, or a line starts; None for a model's name or file. SpecError
    for a text that starts none, or one that names no model."""
    if not isinstance(source, (str, Path)):
        return None
    text = str(source)
    line = isinstance(source, str) and len(text.split()) > 1 and not (len(text) <= LONGEST and Path(text).is_file())
    if not line and (len(text) > LONGEST or without_gz(Path(text)).suffix.lower() in _TABLES or not Path(text).is_file()):
        return None
    from windtunnel.formats.jobs.scripts.script_call import SCRIPTS, call_of, is_file
    from windtunnel.formats.jobs.servers.launch import read_launch
    from windtunnel.formats.text.source import read_source
    from windtunnel.formats.text.tool_marks import hint_of_text, tool_of_text

    call = call_of(text)
    found = read_launch(Path(text) if call is not None or not line else text + "\n")
    absent = [word for word in text.split() if word.endswith(SCRIPTS) and not is_file(Path(word))] if line and call is None else []
    if found is None and absent:
        raise FileError(absent[-1], "no such file", "a script that starts a server")
    if found is None:
        content = text if line and call is None else read_source(Path(text) if call is None else call.script)[0]
        hint = "Start it as on the terminal, such as: vllm serve Qwen/Qwen3-8B -tp 2."
        raise SpecError("MODEL", text[:60], WANTED, hint_of_text(content, _TYPED) if tool_of_text(content) else hint)
    if "model" not in found.fields and "model" not in found.unset:
        raise SpecError("MODEL", text[:60], f"a line of {found.tool.title} that names its model")
    return found
