"""The line that starts an inference server, as a served job: vLLM's, SGLang's, TensorRT-LLM's, Dynamo's, LMDeploy's, TGI's.

Scripts, `docker run`, `srun`, Kubernetes' and Compose's manifests, and a benchmark's client beside the server, which says the load.
`launch.toml` has the flags by tool. Nothing is executed. Every flag is taken, listed as not modelled, or as changing nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, Nothing, SpecError
from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.hub_names import find_named
from windtunnel.formats.jobs.scripts.command import ScriptCommands
from windtunnel.formats.jobs.scripts.missing_arguments import unset_names
from windtunnel.formats.jobs.scripts.script_call import call_of, file_of, is_file
from windtunnel.formats.jobs.servers import nim
from windtunnel.formats.jobs.servers.around import release_of, switched_on
from windtunnel.formats.jobs.servers.clients import ClientLoad, client_load
from windtunnel.formats.jobs.servers.drafts import drafts_of, formats_of, trtllm_passes_of, vllm_passes_of
from windtunnel.formats.jobs.servers.written import Command, commands_of_calls, commands_of_manifest, is_manifest
from windtunnel.formats.text.source import read_source

STARTS = re.compile(
    r"\bvllm\b|sglang|trtllm|tensorrt[-_]?llm|\bdynamo\b|lmdeploy|text-generation-(launcher|inference)|\btgi\b|nvcr\.io/nim/"
    r"|\bmodel_loading_config\b|\bserving\.kserve\.io\b|\bservingEngineSpec\b",
    re.IGNORECASE,
)
"""What a text has somewhere that starts a server."""
BALANCE_WAIT = 50
"""Passes that TensorRT-LLM's balanced DP-attention ranks decode before new prompts start, unless each has one: the default of
`timeout_iters`. The count runs whether any wait or not (py_executor.py, `_balance_adp_requests`), as `ServeEngine.polls` does."""
_DEGREES = ("tp", "pp", "dp", "ep")
_COUNTS = (*_DEGREES, "running", "polls")
_INTEGERS = (*_COUNTS, "step_tokens", "context", "balance_wait", "steps", "draft_tokens", "branches", "policy", "graph_most")
_NEEDED = ("model", *_DEGREES, "speculative")
_NUMBERS = ("memory", "memory_after_weights")
_SWITCHES = {"expert_parallel", "eager", "sync", "ahead", "dp_attention", "balance", "chunked", "graph_padding"}
_SWITCHES |= {"prefill_worker", "decode_worker"}


@dataclass(frozen=True)
class ServerTool:
    """A tool of `launch.toml`: `read`: flag -> field; `config`: key of a configuration -> field; `like`: what is assumed where its
    engine is another's; `variables`: field -> variable of the environment."""

    name: str
    title: str
    engine: str
    starts: tuple[tuple[str, ...], ...]
    image: str
    read: Mapping[str, str]
    switches: tuple[str, ...]
    unread: tuple[str, ...]
    harmless: tuple[str, ...]
    config: Mapping[str, str]
    like: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass
class LaunchedServer:
    """What a line says. `fields`: of `serving.options.ServeOptions`; `taken`, `ignored`, `assumed`: in words. `side`: prefill or
    decode, where it serves one side; `copies` of it are started. `unset`: field -> (flag, value) whose variables nothing sets."""

    tool: ServerTool
    fields: dict[str, Any] = field(default_factory=dict)
    quantization: str = ""
    taken: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    side: str = ""
    copies: int = 1
    unset: dict[str, tuple[str, str]] = field(default_factory=dict)

    def check_unset(self, stated: Collection[str], source: str) -> None:
        """Passes if the server is known: its model, its ranks and its drafts are set, or among the fields that are `stated` beside
        the `source`. Else SpecError with all of the variables, and how to set them. What is left goes to `assumed`."""
        left = {key: said for key, said in self.unset.items() if key not in stated}
        needed = {key: said for key, said in left.items() if key in _NEEDED}
        if needed:
            lines = [f"{', '.join(unset_names(text)) or text} for {flag}" for flag, text in needed.values()]
            likes = {"model": "NAME", "speculative": "VALUE"}
            named = " ".join({f"{name}={likes.get(key, 'N')}": 0 for key, said in needed.items() for name in unset_names(said[1])})
            script = Path(file_of(source))
            hints = [f'Write the call in quotes: "{named} {script.name}".'] if is_file(script) else []
            if needed.keys() <= set(_DEGREES):
                hints.append(f"{'Or state' if hints else 'State'} {' '.join(f'--{key} N' for key in needed)}.")
            raise SpecError(script.name if is_file(script) else "MODEL", Nothing(), "; ".join(lines), " ".join(hints))
        self.assumed += [f"the default for {flag}: nothing sets {text[:80]}" for flag, text in left.values()]

    def notes(self, where: str) -> tuple[str, ...]:
        """The lines that an answer shows."""
        lines = [f"{where} starts {self.tool.title}: {', '.join(self.taken) or 'no flag that is modelled'}"]
        lines += [f"assumed: {line}" for line in self.assumed]
        return (*lines, *self.ignored)


@cache
def server_tools() -> tuple[ServerTool, ...]:
    """All tools."""
    made = []
    for name, row in table_beside(__file__).items():
        flags = {flag: key for key, listed in row["read"].items() for flag in listed}
        starts = tuple(tuple(one) for one in row["starts"])
        lists = {key: tuple(values) for key, values in row["lists"].items()}
        more: dict[str, Any] = {"config": row.get("config", {}), "like": row.get("like", ""), **lists}
        more["variables"] = row.get("variables", {})
        made.append(ServerTool(name, row["title"], row["engine"], starts, row["image"], flags, **more))
    return tuple(made)


def tool_of(words: Sequence[str]) -> tuple[ServerTool, int] | None:
    """The tool that a command starts, and the place behind the words by which it is known; None for another command."""
    bare = [word.rpartition("/")[2] for word in words]
    for tool in server_tools():
        for start in tool.starts:
            place = _find(start, words, bare)
            if place is not None:
                return tool, place
    if words and bare[0] in ("docker", "podman", "nerdctl", "apptainer", "singularity", "image"):
        for place, word in enumerate(words[1:], 1):
            image = not word.startswith("-") and (":" in word or "/" in word) and "=" not in word
            for tool in server_tools():
                if image and re.search(tool.image, word):
                    return tool, place + 1
    return None


def _find(start: Sequence[str], words: Sequence[str], bare: Sequence[str]) -> int | None:
    """The place behind words that follow one another in a command."""
    for place in range(len(words) - len(start) + 1):
        parts = zip(start, bare[place : place + len(start)], words[place : place + len(start)], strict=True)
        if all(re.fullmatch(pattern, one) or re.fullmatch(pattern, whole) for pattern, one, whole in parts):
            return place + len(start)
    return None


def started_tool(
    text: str, where: str = "text", path: Path | None = None, script: ScriptCommands | None = None
) -> ServerTool | None:
    """The first server that a text starts; None for one that starts none, or that cannot be read. `script`: the text's commands,
    where another reader asks for them too."""
    if not STARTS.search(text):
        return None
    try:
        listed, _ = _commands(text, where, path, script)
    except FileError:
        return None
    lines = (inside.words if (inside := nim.line_of(words)) is not None else words for words, _, _ in listed)
    return next((found[0] for words in lines if (found := tool_of(words)) is not None), None)


def refuse_server(text: str, where: str, path: Path | None = None, script: ScriptCommands | None = None) -> None:
    """SpecError for a text that starts a server, from readers of what trains. `script`: as of `started_tool`."""
    tool = started_tool(text, where, path, script)
    if tool is not None:
        hint = f"Type: windtunnel serve-predict {where if path else 'FILE'} --on CLUSTER."
        raise SpecError(where, f"a line that starts {tool.title}, which serves a model", "what trains one", hint)


def _commands(text: str, where: str, path: Path | None, script: ScriptCommands | None) -> tuple[list[Command], Mapping[str, str]]:
    """The commands of a script or a manifest, and the files that a script writes."""
    if is_manifest(text, path):
        return commands_of_manifest(text, where), {}
    if written := commands_of_calls(text):
        return [(words, 1, None) for words in written], {}
    script = script or ScriptCommands(text, where, path=path)
    return [(words, 1, None) for words in script.commands if words], script.written_files


def read_launch(source: str | Path) -> LaunchedServer | None:
    """The served job of a script, also with what it is started with, a command line or a manifest; None for a text that starts no
    server that is known.

    A prefill and a decode server in one text are one served job of two sides. Raises FileError for what cannot be read, and
    SpecError for a value that none can be.
    """
    call = call_of(source)
    source = source if call is None else call.script
    text, where = read_source(source)
    if not STARTS.search(text):
        return None
    path = source if isinstance(source, Path) else None
    servers: list[LaunchedServer] = []
    load = ClientLoad({}, ())
    given = ((), {}) if call is None else (call.arguments, call.environment)
    script = None if is_manifest(text, path) else ScriptCommands(text, where, *given, path)
    listed, written = _commands(text, where, path, script)
    files = {**dict(_files_of(text)), **written}
    for words, copies, side in listed:
        inside = nim.line_of(words, script)
        known = tool_of(words := words if inside is None else inside.words)
        if known is not None:
            made = _read_words(known[0], list(words[known[1] :]), path, files)
            dated = switched_on(known[0].variables, text)
            dated |= release_of(known[0].image, words[: known[1]], text) if known[0].name == known[0].engine else {}
            made.fields |= dated
            made.taken += [f"{key} {value}" for key, value in dated.items()]
            made.copies, made.side = copies, made.side or side or ""
            if inside is not None:
                made.ignored[:0], made.quantization = inside.notes, made.quantization or inside.form
            if not servers or not _joins_another(words):
                servers.append(made)
        elif (asked := client_load(words)) is not None:
            load = asked
    servers = [one for one in servers if "model" in one.fields or "model" in one.unset or one.side] or servers
    if not servers:
        return None
    whole = _join_sides(servers)
    whole.fields = {**load.fields, **whole.fields}
    whole.assumed += [f"load: {line}" for line in load.assumed]
    if load.fields:
        whole.taken.append("load " + ", ".join(f"{key} {value}" for key, value in load.fields.items()))
    return whole


def _joins_another(words: Sequence[str]) -> bool:
    """Whether a command starts a further node of a server that another one starts: its number among the nodes is not 0."""
    line = " ".join(words)
    return re.search(r"--headless\b|--(?:node[-_]rank|data[-_]parallel[-_](?:start[-_])?rank)[ =]0*[1-9]", line) is not None


def _join_sides(servers: list[LaunchedServer]) -> LaunchedServer:
    """One served job of all servers of a text: with two sides, or with copies."""
    fronts = [one for one in servers if one.side == "prefill"]
    backs = [one for one in servers if one.side == "decode"]
    whole = (backs or servers)[-1]
    for other in servers:
        whole.fields.setdefault("model", other.fields.get("model"))
    if whole.fields.get("model") is None:
        del whole.fields["model"]
    if fronts and backs:
        front = fronts[-1].fields
        words = [f"gpus={sum(one.copies * _gpus(one.fields) for one in fronts)}"]
        words += [f"{key}={front[key]}" for key in ("tp", "pp", "dp", "ep") if key in front]
        whole.fields["prefill"] = ",".join(words)
        whole.taken.append(f"prompts on {len(fronts)} servers of their own ({whole.fields['prefill']})")
        whole.ignored += [line for line in fronts[-1].ignored if line not in whole.ignored]
        own = {key: value for key, value in front.items() if key not in ("model", "engine", *_DEGREES)}
        apart = [f"{key} {value}" for key, value in own.items() if whole.fields.get(key) != value]
        whole.ignored += [f"not modelled of the servers of prompts: {', '.join(apart)}"] if apart else []
        whole.copies = sum(one.copies for one in backs)
    elif len(servers) > 1 and not fronts and not backs:
        whole.copies = sum(one.copies for one in servers)
    if whole.copies > 1:
        whole.fields["copies"] = whole.copies
        whole.taken.append(f"{whole.copies} copies")
    return whole


def _gpus(fields: Mapping[str, Any]) -> int:
    return int(fields.get("tp", 1)) * int(fields.get("pp", 1)) * int(fields.get("dp", 1))


def _files_of(text: str) -> Iterator[tuple[str, str]]:
    """(name, content) of files that a script writes with here-documents."""
    for found in re.finditer(r"<<-?\s*['\"]?(\w+)['\"]?([^\n]*)\n(.*?)\n\s*\1\s*(?:\n|$)", text, re.DOTALL):
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()] + found[2]
        name = re.search(r">\s*([^\s<>]+)", line)
        if name is not None:
            yield name[1].strip("'\"").rpartition("/")[2], found[3]


def _read_words(tool: ServerTool, words: list[str], path: Path | None, files: Mapping[str, str]) -> LaunchedServer:
    """The flags of a command behind what started it."""
    made = LaunchedServer(tool)
    if tool.like:
        made.assumed.append(f"{tool.title}: {tool.like}")
    raw: dict[str, Any] = {}
    loose: list[str] = []
    unread: list[str] = []
    harmless: list[str] = []
    unknown: list[str] = []
    for name, value in _flags(tool, words, loose):
        head, _, rest = name.partition(".")
        key = tool.read.get(head := _whole_name(tool, head))
        if key is not None:
            if key == "served":
                harmless.append(f"--{head}")
            if rest:
                inner = raw.setdefault(key, {})
                if isinstance(inner, dict):
                    inner[rest.replace("-", "_")] = value
            else:
                raw[key] = value
        else:
            (unread if _is_among(head, tool.unread) else harmless if _is_among(head, tool.harmless) else unknown).append(
                f"--{head}"
            )
    if "config" in raw:
        _read_config(tool, str(raw.pop("config")), path, files, raw, made, unread)
    if loose and "model" not in raw:
        raw["model"] = loose[0]
    _take_all(tool, raw, made)
    for what, listed in (("not modelled", unread), ("change nothing", harmless), ("not known", unknown)):
        if listed:
            made.ignored.append(f"{what}: {', '.join(dict.fromkeys(listed))}")
    return made


def _whole_name(tool: ServerTool, name: str) -> str:
    """The flag that a beginning of its name stands for, as argparse takes it where no other begins so."""
    if name in tool.read or len(name) < 4 or any(_is_among(name, listed) for listed in (tool.unread, tool.harmless, tool.switches)):
        return name
    known = {flag for flag in (*tool.read, *tool.unread, *tool.harmless, *tool.switches) if flag.startswith(name)}
    return known.pop() if len(known) == 1 else name


def _is_among(name: str, listed: Sequence[str]) -> bool:
    return any(name == one or one.endswith("-") and name.startswith(one) for one in listed)


def _flags(tool: ServerTool, words: list[str], loose: list[str]) -> Iterator[tuple[str, str]]:
    """(name without dashes, value; "true" for a switch) of each flag; other words join `loose`."""
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word in (";", "&", "&&", "|", "||") or re.fullmatch(r"\d?>.*", word):
            break
        if not re.match(r"--?[A-Za-z]", word):
            loose.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-") if "{" not in name else name
        head = name.partition(".")[0]
        if equals:
            yield name, value
            continue
        switch = head in tool.switches or head.startswith("no-")
        following = words[place] if place < len(words) else None
        if not switch and following is not None and not re.match(r"--?[A-Za-z]", following):
            place += 1
            yield name, following
        elif switch and following is not None and following.lower() in ("true", "false"):
            place += 1
            yield name, following.lower()
        else:
            yield name, "true"


def _read_config(
    tool: ServerTool,
    name: str,
    path: Path | None,
    files: Mapping[str, str],
    raw: dict[str, Any],
    made: LaunchedServer,
    unread: list[str],
) -> None:
    """The keys of a configuration that a flag names: beside the script, or written by it. Flags beat it."""
    import yaml

    text = files.get(name.rpartition("/")[2])
    if text is None and path is not None:
        beside = path.parent / Path(name).name
        place = path.parent / name if not Path(name).is_absolute() else Path(name)
        found = next((one for one in (place, beside) if one.is_file()), None)
        text = found.read_text(encoding="utf-8", errors="replace") if found is not None else None
    if text is None:
        made.assumed.append(f"defaults for what {name} says: the file is not beside the script")
        return
    try:
        table = yaml.safe_load(re.sub(r"\$\{(\w+)[^}\n]*\}", r"$\1", text))  # what nothing sets keeps its name
    except yaml.YAMLError as error:
        raise FileError(name, str(error).partition("\n")[0], "a configuration in YAML") from None
    if not isinstance(table, Mapping):
        return
    made.taken.append(f"{name} read")
    for key, value in _leaves(table, tool.config):
        head = key.rpartition(".")[2].replace("_", "-")
        whole = key.replace("_", "-").replace(".", "-")
        field_name = tool.config.get(key) or tool.read.get(whole) or tool.read.get(head)
        if key.endswith("speculative_config") and isinstance(value, Mapping):
            raw.setdefault("speculative", dict(value))
        elif field_name == "no_graph":
            raw.setdefault("eager", "true" if value in (None, False) else "false")
        elif field_name is not None:
            raw.setdefault(field_name, value)
        elif not _is_among(head, tool.harmless):
            unread.append(key)


def _leaves(table: Mapping[Any, Any], known: Mapping[str, str], head: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{head}{key}"
        if isinstance(value, Mapping) and not name.endswith("speculative_config"):
            yield from _leaves(value, known, f"{name}.")
        elif name.startswith("cuda_graph_config.") and name not in known:
            yield "cuda_graph_config", True
        else:
            yield name, value


def _take_all(tool: ServerTool, raw: dict[str, Any], made: LaunchedServer) -> None:
    """Fields of a served job from the values of flags."""
    read: dict[str, Any] = {}
    for key, value in raw.items():
        flag = next(flag for flag, name in tool.read.items() if name == key) if key in tool.read.values() else key
        if re.search(r"\$[\w{(]", str(value)):
            made.unset[key] = (f"--{flag}", str(value))
        else:
            read[key] = _value(key, value, f"--{flag}")
    fields = made.fields
    if "model" in read:
        fields["model"] = str(read["model"])
    if (served := str(read.get("served", ""))) and _is_unknown(fields.get("model")) and not _is_unknown(served):
        made.assumed.append(f"the model {served}, the name by which it is served")
        fields["model"] = served
        made.unset.pop("model", None)
    fields["engine"] = tool.engine
    fields.update({key: read[key] for key in _COUNTS if key in read})
    if read.get("step_tokens", 0) > 0:
        fields["step_tokens"] = read["step_tokens"]
    if "context" in read and read["context"] > 0:
        fields["max_model_len"] = read["context"]
    if "memory" in read:
        fields["memory"] = read["memory"]
    if "memory_after_weights" in read:  # of what weights leave: the whole share is near it for small models
        made.assumed.append(
            f"--memory {read['memory_after_weights']}: a share of what weights leave is taken for one of all memory"
        )
        fields["memory"] = read["memory_after_weights"]
    if read.get("balance") and read.get("dp_attention"):
        fields["polls"] = max(1, read.get("balance_wait", BALANCE_WAIT))
    fields.update({key: True for key in ("eager", "sync", "ahead") if read.get(key)})
    if tool.engine == "trtllm":
        stated, assumed = trtllm_passes_of(read)
        fields.update(stated)
        made.assumed += assumed
    elif tool.engine == "vllm":
        stated, others = vllm_passes_of(read)
        fields.update(stated)
        made.ignored += others
    _take_ranks(tool, read, made)
    stated, made.quantization, guessed = formats_of(read)
    fields.update(stated)
    made.assumed += guessed
    drafted = drafts_of(read)
    fields.update({"speculate": drafted.speculate} if drafted.speculate else {})
    made.assumed += drafted.assumed
    made.ignored += drafted.ignored
    side = str(read.get("mode", "")).lower()
    made.side = next((one for one in ("prefill", "decode") if read.get(f"{one}_worker") or side == one), "")
    shown = {key: value for key, value in fields.items() if key not in ("engine",)}
    made.taken += [f"{key} {value}" for key, value in shown.items()]
    if made.quantization:
        made.taken.append(f"quantization {made.quantization}")


def _is_unknown(model: str | None) -> bool:
    """Whether a name or path is no model that is known: a variable, or a folder of the user's own."""
    return model is None or not is_file(Path(model)) and find_named(model) is None


def _take_ranks(tool: ServerTool, read: Mapping[str, Any], made: LaunchedServer) -> None:
    """Degrees as a served job has them, from each tool's own."""
    fields = made.fields
    tp, dp = int(fields.get("tp", 1)), int(fields.get("dp", 1))
    if tool.name == "sglang" and read.get("dp_attention") and dp > 1:  # its tp is over all ranks
        if tp % dp:
            raise SpecError("--dp-size", dp, f"a divisor of --tp-size {tp} with --enable-dp-attention")
        fields["tp"] = tp // dp
    elif tool.name == "sglang" and dp > 1:
        fields["copies"] = dp
        del fields["dp"]
    elif tool.name == "trtllm" and read.get("dp_attention"):
        fields["tp"], fields["dp"] = 1, tp
    if tool.name == "sglang" and str(read.get("a2a", "none")).lower() in ("deepep", "mooncake", "flashinfer"):
        fields.setdefault("ep", tp)
    if read.get("expert_parallel"):
        fields.setdefault("ep", int(fields.get("tp", 1)) * int(fields.get("dp", 1)))
    if fields.get("ep") == 1:
        del fields["ep"]


def _value(key: str, value: Any, flag: str) -> Any:
    """A value of its kind. SpecError for another one."""
    text = str(value).strip()
    if key in _SWITCHES:
        return text.lower() in ("true", "1", "yes", "on")
    if key == "context" and text == "auto":  # as long as the cache allows, or the model
        return 0
    if key in _INTEGERS:
        found = re.fullmatch(r"(-?\d+)([kKmM]?)", text)
        if found is None:
            raise SpecError(flag, text, "a whole number")
        return int(found[1]) * {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20}[found[2]]
    if key in _NUMBERS:
        try:
            return float(text)
        except ValueError:
            raise SpecError(flag, text, "a number") from None
    return value
