"""Whatever a user types wrong, the command line ends with code 2 and one message that can be read; never with a traceback.

Most run in this process through the same `main` that the installed command calls; a few as a real process, as typed in a shell.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from windtunnel.base.errors import WindtunnelError
from windtunnel.cli import app, main
from windtunnel.spec import Cluster, Model, Plan, Runtime, names

JOB = "gpt3-175b-64"
GOOD = '[model]\nname = "m"\nlayers = 4\nhidden = 64\nheads = 4\nffn = 256\nvocab = 1000\n'


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a command line that is refused as it should be."""
    code = main(arguments)
    told = capsys.readouterr()
    assert code == 2, (code, told.out[-500:], told.err[-500:])
    assert told.out == ""
    message = told.err
    assert message.startswith("windtunnel: ") and message.endswith("\n") and message.count("\n") == 1, message
    assert "Traceback" not in message and len(message) < 1200
    return message


def sets(*overrides: str) -> list[str]:
    return ["predict", JOB, *(word for one in overrides for word in ("--set", one))]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        # unknown keys and names: the nearest one is shown
        (["plan.micro_bach=1"], "Did you mean 'micro_batch'"),
        (["runtim.precision=bf16"], "Did you mean 'runtime'"),
        (["model.hiden=1024"], "Did you mean 'hidden'"),
        (["cluster.node.nic.banwidth=100Gb/s"], "Did you mean 'bandwidth'"),
        (["cluster.fabric.hop_latncy=1us"], "Did you mean 'hop_latency'"),
        (["runtime.host.layr=1us"], "Did you mean 'layer'"),
        (["model=gpt3-175"], "Did you mean 'gpt3-175b'"),
        (["cluster=eoz"], "Did you mean 'eos'"),
        (["cluster.node=dgx-h10"], "Did you mean 'dgx-h100'"),
        (["cluster.fabric=infiniband-ndr"], "cluster.fabric"),
        (["cluster.node.gpu=h100-sxm-80g"], "Did you mean 'h100-sxm-80gb'"),
        (["runtime.framework=megatron"], "Did you mean 'megatron-"),
        (["plan.sharding=zero4"], "Did you mean 'zero"),
        (["plan.recompute=selectve"], "Did you mean 'selective'"),
        (["plan.schedule=1f1bb"], "Did you mean '1f1b'"),
        (["runtime.optimizer=adamw"], "Did you mean 'adam'"),
        # numbers that contradict each other
        (["plan.tp=5", "cluster.gpus=40"], "model.heads = 96"),
        (["plan.tp=16"], "cluster.gpus"),
        (["cluster.gpus=63"], "cluster.gpus"),
        (["plan.dp=3", "cluster.gpus=64"], "plan.dp"),
        (["cluster.gpus=72", "plan.pp=9", "plan.vpp=1"], "model.layers = 96"),
        (["plan.pp=7", "plan.dp=1", "cluster.gpus=56"], "layers"),
        (["plan.stages=[96]"], "pp*vpp"),
        (["plan.stages=[]"], "pp*vpp"),
        (["plan.global_batch=65"], "pp = 8"),
        (["plan.micro_batch=3"], "multiple of micro_batch*dp = 3"),
        (["plan.shard_group=5"], "divisor of dp*cp"),
        (["plan.recompute_layers=1000"], "layers of a virtual stage"),
        (["plan.cp=2"], "cluster.gpus"),
        (["plan.seq=2047"], "plan.seq"),
        (["plan.seq=1000000000"], "plan.seq"),
        (["plan.schedule=1f1b"], "interleaved"),
        (['plan.placement=["tp"]'], "each of tp, cp, ep, dp, pp once"),
        (["runtime.precision=nvfp4"], "runtime.precision"),
        (["cluster.fabric=none"], "a network"),
        (["cluster.node.nic=none"], "no NIC"),
        (["cluster.node.scale_up.size=3"], "scale_up.size"),
        (["model.heads=97"], "model.heads"),
        (["model.kv_heads=7"], "model.kv_heads"),
        # sizes that are none
        *[
            ([f"{field}={value}"], field)
            for field in ("plan.tp", "plan.micro_batch", "model.layers", "cluster.gpus", "cluster.node.gpus")
            for value in ("0", "-1", "nan", "inf", "1.5", "1e3", "true", "''", "[]", "{}", "99999999999999999999")
        ],
        *[
            ([f"{field}={value}"], field)
            for field in ("runtime.bucket", "cluster.node.gpu.memory")
            for value in ("0", "-1", "nan", "inf", "-inf", "true", "80 gigs", "[]", "1e400")
        ],
        *[
            ([f"{field}={value}"], field)
            for field in ("runtime.host.launch", "cluster.fabric.hop_latency")
            for value in ("-1us", "-1", "nan", "inf", "5 fortnights", "true", "1e400")
        ],
        *[
            ([f"cluster.{field}={value}"], field)
            for field in ("pue", "price_per_gpu_hour", "slow_node_factor", "fabric.efficiency")
            for value in ("-1", "nan", "inf", "'2'", "true")
        ],
        # bandwidths without a unit, or without an owner
        (["cluster.node.nic.bandwidth=200"], "unit"),
        (["cluster.node.nic.bandwidth=200Gb"], "unit"),
        (["cluster.node.nic.bandwidth=0Gb/s"], "above zero"),
        (["cluster.node.nic.bandwidth=-5Gb/s"], "unit"),
        (["cluster.node.nic.bandwidth=1e400Gb/s"], "finite"),
        (["cluster.node.nic.bandwidth=200Gb/s per node"], "per NIC"),
        (["cluster.node.nic.bandwidth=200Gb/s per cable"], "per cable"),
        (["cluster.node.scale_up.bandwidth=300GB/s"], "per what"),
        (["cluster.node.scale_up.bandwidth=300GB/s per GPU"], "each way"),
        (["cluster.node.gpu.memory_bandwidth=2"], "unit"),
        (["cluster.node.gpu.peak.bf16=312"], "unit"),
        (["cluster.node.gpu.peak.bf16=0TFLOP/s"], "above zero"),
        # --set itself
        (["plan.tp"], "path.to.field=value"),
        (["=1"], "path.to.field=value"),
        (["plan.=1"], "path.to.field=value"),
        (["pl an.tp=1"], "path.to.field=value"),
        (["plan.tp=1=2"], "plan.tp"),
        (["plan.tp.x=1"], "plan.tp"),
        (["plan=1"], "plan"),
        (["model=[1]"], "model"),
        ([""], "path.to.field=value"),
        (["plan.tp=\x00"], "plan.tp"),
        (["a." * 300 + "b=1"], "levels"),
        (["plan.tp=" + "[" * 5000], "plan.tp"),
        (["plan.tp=" + "x" * 10**5], "plan.tp"),
        (["plan.stages=" + str([1] * 2000)], "plan.stages"),
    ],
)
def test_overrides(overrides: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(sets(*overrides), capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["predict", "gpt3-175b-65"], "Did you mean 'gpt3-175b-64'"),
        (["memory", "gpt3"], "Did you mean"),
        (["memory", "h100-ib"], "It is a cluster: write a model, and --on h100-ib."),
        (["compare", JOB], "B"),
        (["compare", JOB, JOB, JOB], "3 jobs"),
        (["predict", "--megatron", "--num-layers 2", "run.sh"], "change what a script says"),
        (["fleet", "run", "--nodes", "1", "--driver-listen", "foo", "--", "true"], "--driver-listen: got 'foo'"),
        (["fleet", "replay", JOB, "--faults", "0.01", "--node-repair", "x@"], "--node-repair: got 'x@'"),
        (["fleet", "run", "--nodes", "1", "--expect-step", "5", "--", "true"], "LOW..HIGH"),
        (["compare", JOB, "gpt-1t-51"], "Did you mean 'gpt-1t-512'"),
        (["prdict"], "Did you mean 'predict'"),
        (["predict", JOB, "--jsn"], "--json"),
        (["predict", JOB, "extra"], "extra"),
        (["predict", JOB, "plan.pp=2"], "--set plan.pp=2"),
        (["predict", ""], "JOB: got nothing"),
        (["predict", " "], "job"),
        (["predict", "."], "."),
        (["predict", "/"], "/"),
        (["predict", JOB, "--set"], "--set"),
        (["predict", JOB, "--network", ""], "--network"),
        (["predict", "-"], "-"),
        (["export"], "FORMAT"),
        (["export", "toml"], "JOB"),
        (["predict", "a\x00b"], "JOB"),
        (["predict", "x" * 5000], "JOB"),
        (["predict", "x" * 5000 + ".toml"], "too long"),
        (["predict", JOB, "--json", ""], "--json"),
        (["catalog", "gpus", "nothing-like-it"], "gpus"),
        (["import", "absent.json"], "absent.json"),
        (["validate", "/absent/rows.csv"], "rows.csv"),
        (["collective", "--cluster", "selene", "--gpus", "0"], "gpus"),
        (["collective", "--cluster", "selene", "--gpus", "-8"], "gpus"),
        (["collective", "--cluster", "selene", "--bytes", "nan"], "--bytes"),
        (["collective", "--cluster", "selene", "--gpus", "100000000"], "gpus"),
    ],
)
def test_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(arguments, capsys)


FILES: dict[str, bytes] = {
    "empty.toml": b"",
    "blank.json": b" \n",
    "half.toml": GOOD.encode()[:40],
    "half.json": b'{"model": {"name": "m", "layers"',
    "zeros.toml": b"\x00" * 64,
    "binary.json": bytes(range(256)),
    "picture.toml": b"\x89PNG\r\n\x1a\n" + bytes(range(255, 0, -1)),
    "latin.toml": 'name = "caf\xe9"'.encode("latin-1"),
    "list.json": b"[1, 2, 3]",
    "text.json": b'"megascale"',
    "number.json": b"5",
    "null.json": b"null",
    "nan.json": b'{"tokens": NaN}',
    "inf.json": b'{"tokens": 1e999}',
    "deep.json": b'{"a":' * 60 + b"1" + b"}" * 60,
    "abyss.json": b'{"a":' * 10**5,
    "abyss.toml": b"a = " + b"[" * 10**5,
    "twice.json": b'{"base": "gpt3-175b-64", "base": "gpt-1t-512"}',
    "twice.toml": b"seed = 1\nseed = 1\n",
    "only.toml": GOOD.encode(),
    "wrong.toml": b"model = 5\nplan = []\nruntime = true\ncluster = 1.5\n",
    "digits.json": b'{"seed": ' + b"9" * 10**4 + b"}",
    "crlf.toml": b"a\r\n= 1",
    "loop.toml": b'base = "loop"',
    "escape.toml": b'base = "\\uD800"',
    "keys.toml": b'"" = 1',
    "dates.toml": b"seed = 2024-01-01",
    "unknown.toml": b'base = "gpt3-175b-64"\nmodell = "gpt3-175b"\n',
    "bom.json": b"\xef\xbb\xbf{",
    "utf16.toml": "seed = 1".encode("utf-16"),
}


@pytest.mark.parametrize("verb", ["predict", "memory", "export"])
@pytest.mark.parametrize("name", FILES)
def test_files(name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    assert refused([verb, str(path)], capsys)


@pytest.mark.parametrize("verb", [["predict"], ["memory"], ["import"], ["validate"], ["predict", JOB, "--model"], ["compare", JOB]])
def test_places_that_are_no_files(verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder.json").mkdir()
    for path in (tmp_path / "folder.json", tmp_path / "absent.json", tmp_path / "absent" / "deep.toml", tmp_path):
        assert refused([*verb, str(path)], capsys)


@pytest.mark.parametrize("name", ["large.json", "large.toml", "large.txt"])
def test_a_terabyte_is_refused_unread(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sparse file, which no machine could read whole."""
    path = tmp_path / name
    path.write_bytes(b'{"key": 1, ' if name.endswith("json") else b"# nothing\n")
    os.truncate(path, 2**40)
    assert " MiB" in refused(["predict", str(path)], capsys)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\x00\xff", b"not flags at all \x07", b"--num-layers", b"--num-layers x --hidden-size -5", b"$(rm -r x) `x`"],
)
def test_descriptions_that_importers_refuse(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("flags.sh", "run.txt", "config.json"):
        path = tmp_path / name
        path.write_bytes(content)
        assert refused(["predict", str(path), "--on", "selene"], capsys)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"hidden_size": 64},
        {"model_type": "llama"},
        {"model_type": "llama", "hidden_size": "big"},
        {"model_type": 5, "hidden_size": 64},
        {
            "model_type": "llama",
            "hidden_size": -64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 8,
            "vocab_size": 8,
        },
        {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": 0,
            "num_attention_heads": 0,
            "intermediate_size": 8,
            "vocab_size": 8,
        },
        {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 1e9,
            "vocab_size": None,
        },
    ],
)
def test_configs_that_make_no_model(config: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert refused(["predict", "llama3-8b-8xh100", "--model", str(path)], capsys)


@pytest.mark.parametrize("option", ["--json", "--trace", "--html"])
def test_outputs_that_cannot_be_written(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "no" / "such" / "place", tmp_path / "file" / "below", Path("/dev/null/x"), Path("x" * 300)):
        assert option in refused(["predict", JOB, "-q", option, str(path)], capsys)


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    assert "--json" in refused(["predict", JOB, "-q", "--json", str(tmp_path / "p.json")], capsys)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("option", ["--json", "--trace", "--html"])
def test_a_full_disk(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert option in refused(["predict", JOB, "-q", option, "/dev/full"], capsys)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_standard_output_that_is_full_or_closed() -> None:
    command = [sys.executable, "-m", "windtunnel", "catalog", "jobs"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (2, "windtunnel: standard output: No space left on device.\n")
    closed = subprocess.run(["sh", "-c", f"{shlex.join(command)} >&-"], stderr=subprocess.PIPE, text=True, timeout=120)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_what_another_file_is_for_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "without files" in refused(["fleet", "hang", str(tmp_path)], capsys)
    assert ".parquet" in refused(["search", JOB, "--out", str(tmp_path / "plans.csv")], capsys)
    assert ".html" in refused(["validate", "--html", str(tmp_path / "page.pdf")], capsys)
    assert "--per-node" in refused(["collective", "-c", "h100-ib", "-n", "16", "--per-node", "9"], capsys)
    assert "15T" in refused(["predict", JOB, "--set", "tokens=15X"], capsys)


AS_TYPED = [
    ["predict", JOB, "--set", "plan.tp=5"],
    ["predict", "no-such-job"],
    ["predict", "absent.toml"],
    ["predict", JOB, "--json", "/no/such/place/p.json"],
    ["predict", JOB, "--set", "cluster.node.nic.bandwidth=200"],
    [],
    ["--nonsense"],
]


@pytest.mark.parametrize("arguments", AS_TYPED, ids=range(len(AS_TYPED)))
def test_as_a_process(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "windtunnel", *arguments], capture_output=True, text=True, timeout=120)
    if not arguments:
        assert done.returncode == 0 and "Verbs" in done.stdout
        return
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("windtunnel: ") and done.stderr.count("\n") == 1


def test_the_app_itself_raises_only_errors_of_ours() -> None:
    """Whoever embeds the typer app gets the error, not an exit in the middle of it."""
    result = CliRunner().invoke(app, ["predict", JOB, "--set", "plan.tp=5"])
    assert isinstance(result.exception, WindtunnelError)


FIELDS = [
    f"{noun}.{field}"
    for noun, kind in (("model", Model), ("plan", Plan), ("runtime", Runtime), ("cluster", Cluster))
    for field in kind.model_fields
]
VALUES = st.one_of(
    st.integers(-2, 10**12).map(str),
    st.floats().map(str),
    st.text(max_size=12),
    st.sampled_from(
        [
            "none",
            "true",
            "[]",
            "{}",
            "''",
            "1GB/s",
            "1e308",
            "80GiB",
            "fp8",
            "[1, 1]",
            "5us",
            *names("gpus")[:2],
            *names("clusters")[:2],
        ]
    ),
)


@examples(65)
@given(st.lists(st.tuples(st.sampled_from(FIELDS), VALUES), min_size=1, max_size=3))
def test_any_override_is_answered_or_refused(pairs: list[tuple[str, str]]) -> None:
    """Through the whole of `memory`, which loads, checks and builds as `predict` does."""
    code = main(["memory", "megatron-22b-8", "-q", *(word for field, value in pairs for word in ("--set", f"{field}={value}"))])
    assert code in (0, 2)


@pytest.mark.parametrize(
    "line",
    [
        "import {}", "validate {}", "runs show {}", "rl-predict {}", "fleet show {}", "calibrate --job llama3-8b-8xh100 {}",
        "collective --cluster h100-ib --gpus 8 --bytes 1M --measured {}", "serve-predict llama3-8b --on {}",
        "flows --fabric fat_tree:k=4,link=400Gb/s --flows {}", "predict {}", "compare {} {}",
    ],
)  # fmt: skip
def test_a_word_that_no_file_can_be_called_is_one_message(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.format("x" * 5000, "y" * 300).split()) == 2
    told = capsys.readouterr().err
    assert told.startswith("windtunnel: ") and "Traceback" not in told


@pytest.mark.parametrize(("line", "instead"), [
    ("flows -f h100-ib --flows incast:dst=0,senders=8,bytes=2MiB", "cluster:name=h100-ib,nodes=N"),
    ("serve-search llama3.1-8b --on h100-ib --concurrency 4", "Did you mean --users?"),
    ("serve-predict llama3.1-8b --on h100-ib --users 4", "Did you mean --concurrency?"),
    ("serve-predict llama3.1-8b --on h100-ib --random-output-len 4", "Did you mean --osl?"),
    ("collective --on h100-ib --size 1M", "Did you mean --bytes?"),
    ("predict llama3-8b-8xh100 --batch-size 8", "Did you mean --batch?"),
    ("predict llama3-8b-8xh100 --gpu 8", "Did you mean --gpus?"),
    ("predict llama3-8b-8xh100 --lora 16", "behind --set: --set model.lora.rank=…."),
    ("memory llama3-8b-8xh100 --load-in-4bit", "behind --set: --set model.lora.base=…."),
    ("goodput llama3-8b-8xh100 --recompute full", "behind --set: --set plan.recompute=…."),
    ("predict llama3.1-70b --on '512 H100'", "Write --on h100-ib --set cluster.gpus=512."),
])  # fmt: skip
def test_a_word_of_another_verb_is_known(line: str, instead: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine where a fabric is asked for, and an option under the word of another verb."""
    assert instead in refused(shlex.split(line), capsys)


@pytest.mark.parametrize("word", ["users", "nonsense", "output-len", "trials"])
def test_an_option_that_resembles_none_gets_no_suggestion(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(["predict", "llama3-8b-8xh100", f"--{word}", "4"], capsys)
    assert "Did you mean" not in told and "behind --set" not in told and "--help" in told


@pytest.mark.parametrize("words", [["--on", "h100-ib"], ["--cluster", "h100-ib"], ["--on=h100-ib"], ["-c", "h100-ib"]])
def test_every_verb_takes_a_machine_by_both_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`collective` has --cluster, `predict` has --on."""
    assert main(["collective", *words, "--bytes", "1M", "--gpus", "16"]) == 0
    assert "16 GPUs of h100-ib" in capsys.readouterr().out
    if words[0] != "-c":
        assert main(["predict", "llama3-8b", *words, "--gpus", "8", "--quiet"]) == 0


@pytest.mark.parametrize(("spelled", "digits"), [
    ("--isl 4k --requests 0.1k --concurrency=8", "--isl 4096 --requests 100 --concurrency=8"),
    ("--isl 1k-2k --osl 0.25k~1<1k --requests 20", "--isl 1024-2048 --osl 256~1<1024 --requests 20"),
    ("--isl 100 --requests 1_0 --max-model-len 32k", "--isl 100 --requests 10 --max-model-len 32768"),
])  # fmt: skip
def test_whole_numbers_are_taken_as_people_write_them(spelled: str, digits: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["serve-predict", "qwen3-8b", "--on", "h100-ib", "--osl", "64", "--concurrency", "4"]
    told = []
    for words in (spelled, digits):
        assert main([*ask, *words.split(), "--json", "-"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    assert told[0] == told[1]
    for wrong in ("2.5", "many", "1.0001k"):
        assert "no whole number, such as 64 or 2k" in refused([*ask, "--requests", wrong], capsys)
    assert "a number of tokens" in refused([*ask, "--isl", "4kb"], capsys)


def test_a_field_that_resembles_none_gets_no_suggestion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key, near in (("nonsense", ""), ("plann", "'plan'")):
        (tmp_path / "job.toml").write_text(f'model = "llama3-8b"\ncluster = "h100-ib"\n{key} = 3\n')
        told = refused(["predict", str(tmp_path / "job.toml")], capsys)
        assert ("Did you mean" in told) == bool(near) and near in told, told
