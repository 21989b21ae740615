"""Bad input: always one of our errors, naming the place, the value and what is allowed; never another exception."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import annotated_types
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import FileError, PlanError, SpecError, UnknownName
from windtunnel.spec import Job, check, load_cluster, load_gpu, load_job, load_model, load_runtime
from windtunnel.spec.common import Noun
from windtunnel.spec.loading.files import MAX_BYTES

JOB = "gpt3-175b-64"


def nested(levels: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for _ in range(levels):
        table = {"plan": table}
    return table


@pytest.mark.parametrize(
    ("override", "path", "words"),
    [
        ("plan.tpp=4", "plan.tpp", "Did you mean 'tp'"),
        ("modle=llama3-8b", "modle", "Did you mean 'model'"),
        ("cluster.node.gpu.memroy=80GiB", "cluster.node.gpu.memroy", "Did you mean 'memory'"),
        ("runtime.host.lunch=1us", "runtime.host.lunch", "Did you mean 'launch'"),
        ("model=llama3-8", "model", "Did you mean 'llama3-8b'"),
        ("cluster=selenium", "cluster", "Did you mean 'selene'"),
        ("cluster.node.gpu=a100", "cluster.node.gpu", "a100-"),
        ("runtime.framework=megatron-ml", "runtime.framework", "Did you mean 'megatron-lm'"),
        ("runtime.precision=bf61", "runtime.precision", "Did you mean 'bf16'"),
        ("plan.tp=0", "plan.tp", "at least 1"),
        ("plan.tp=-1", "plan.tp", "at least 1"),
        ("plan.tp=1.5", "plan.tp", "whole number"),
        ("plan.tp=true", "plan.tp", "whole number"),
        ("plan.tp=four", "plan.tp", "whole number"),
        ("plan.tp=nan", "plan.tp", "whole number"),
        ("plan.tp=" + "9" * 30, "plan.tp", "at most"),
        ("plan.tp=" + "9" * 5000, "plan.tp", "whole number"),
        ("plan.sequence_parallel=1", "plan.sequence_parallel", "true or false"),
        ("tokens=inf", "tokens", "finite"),
        ("tokens=nan", "tokens", "finite"),
        ("tokens=-1", "tokens", "above 0"),
        ("cluster.pue=true", "cluster.pue", "number"),
        ("seed=-1", "seed", "at least 0"),
        ("cluster.node.gpu.memory=0", "cluster.node.gpu.memory", "at least 1048576"),
        ("cluster.node.gpu.memory=80", "cluster.node.gpu.memory", "at least 1048576"),
        ("cluster.node.gpu.memory=-1", "cluster.node.gpu.memory", "size"),
        ("cluster.node.gpu.memory=inf", "cluster.node.gpu.memory", "finite"),
        ("cluster.node.gpu.memory=huge", "cluster.node.gpu.memory", "80GiB"),
        ("cluster.node.nic.bandwidth=400", "cluster.node.nic.bandwidth", "unit"),
        ("cluster.node.nic.bandwidth=400Gb/s per GPU", "cluster.node.nic.bandwidth", "per NIC"),
        ("cluster.node.scale_up.bandwidth=300GB/s", "cluster.node.scale_up.bandwidth", "per what"),
        ("cluster.node.gpu.peak.bf61=1TFLOP/s", "cluster.node.gpu.peak.bf61", "bf16"),
        ("cluster=5", "cluster", "name from the catalogue"),
        ("plan=5", "plan", "table"),
        ("plan.tp=[1]", "plan.tp", "whole number"),
        ("plan.stages=[1, -1]", "plan.stages[1]", "at least 0"),
        ("name=", "name", "not empty"),
        ("cluster.node.base=5", "cluster.node.base", "name"),
        ("plan", "override", "plan.tp=4"),
        ("=4", "override", "plan.tp=4"),
        ("plan..tp=4", "override", "plan.tp=4"),
        ("", "override", "plan.tp=4"),
    ],
)
def test_override_is_refused(override: str, path: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_job(JOB, [override])
    assert caught.value.path == path
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


BAD_TABLES: list[Any] = [
    {},
    None,
    5,
    [],
    True,
    b"x",
    object(),
    {"model": None},
    {"base": 5},
    {"base": None},
    {"base": "nothing"},
    {5: 5},
    {"base": JOB, "plan": {None: 1}},
    {"base": JOB, "plan": nested(60)},
    {"base": JOB, "plan": {"tp": 10**400}},
    {"base": JOB, "tokens": 10**400},
    {"base": JOB, "cluster": {"node": {"gpu": {"memory": 10**400}}}},
    {"base": JOB, "plan": {"tp": float("nan")}},
    {"base": JOB, "plan": object()},
    {"base": JOB, "cluster": {"pue": 1e999}},
    {"base": JOB, "seed": 1.0},
    {"base": JOB, "plan": {"stages": "12"}},
    {"base": JOB, "name": "n" * 10**6},
    {"base": JOB, "runtime": {"base": 5}},
    {"base": JOB, "runtime": {"base": "none"}},
    {"base": JOB, "runtime": []},
    {"base": JOB, "runtime": 5},
    {"base": JOB, "runtime": {"framework": 5}},
    {"base": JOB, "runtime": {"version": ["3"]}},
    {"base": JOB, "runtime": {"precision": {}}},
]


@pytest.mark.parametrize("table", BAD_TABLES, ids=range(len(BAD_TABLES)))
def test_table_is_refused(table: Any) -> None:
    with pytest.raises(SpecError):
        load_job(table)


def test_endless_tables_are_refused() -> None:
    loop: dict[str, Any] = {"base": JOB}
    loop["plan"] = loop
    wide: dict[str, Any] = {}
    wide["a"] = wide["b"] = wide
    for table in (loop, wide):
        with pytest.raises(SpecError, match="levels"):
            load_job(table)


def test_unknown_names() -> None:
    for load, name in (
        (load_job, "gpt3"),
        (load_model, "lama3-8b"),
        (load_cluster, "moon"),
        (load_gpu, "h101"),
        (load_runtime, "torchtitanic"),
    ):
        with pytest.raises(UnknownName):
            load(name)
    with pytest.raises(UnknownName, match="Did you mean 'llama3-8b'"):
        load_model("lama3-8b")


FILES: dict[str, bytes] = {
    "empty.toml": b"",
    "blank.toml": b"  \n\n",
    "binary.toml": bytes(range(128, 256)),
    "null.json": b"\0\0\0",
    "cut.toml": b'model = "gpt3-175b',
    "cut.json": b'{"model": "gpt',
    "list.json": b"[1, 2]",
    "number.json": b"5",
    "nan.json": b'{"tokens": NaN}',
    "twice.json": b'{"name": "a", "name": "b"}',
    "twice.toml": b"seed = 1\nseed = 2\n",
    "deep.toml": b"a = " + b"[" * 60 + b"]" * 60,
    "abyss.toml": b"a = " + b"[" * 100_000,
    "abyss.json": b"[" * 100_000,
    "chain.toml": b"a." * 60 + b"b = 1",
    "text.txt": b"seed = 1",
    "nosuffix": b"seed = 1",
    "digits.toml": b"seed = " + b"9" * 5000,
    "digits.json": b'{"seed": ' + b"9" * 5000 + b"}",
    "utf16.toml": "seed = 1".encode("utf-16"),
    "crlf.json": b"\r\n{",
    "date.toml": b"seed = 2020-13-77",
}


@pytest.mark.parametrize("name", FILES)
def test_file_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(FILES[name])
    with pytest.raises(FileError) as caught:
        load_job(file)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_ways_that_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "large.toml").write_bytes(b"#" * (MAX_BYTES + 1))
    for source, words in (
        (tmp_path / "folder.toml", "directory"),
        (tmp_path / "large.toml", "16 MiB"),
        (tmp_path / "absent.toml", "no such file"),
        ("absent.toml", "no such file"),
        ("a\0b.toml", "null"),
        ("x" * 5000 + ".toml", "too long"),
        (tmp_path, "directory"),
    ):
        with pytest.raises(FileError, match=words):
            load_job(source)


def test_yaml_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    laughs = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join(['*' + old] * 10)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
    )
    for text in (
        "a: [",
        "a: 1\na: 2",
        "&a [*a]",
        laughs,
        "? [1, 2]\n: 3",
        "- 1",
        "!!python/object:os.system x",
        "a: " + "[" * 5000,
        "1: 2",
        "\t",
    ):
        file = tmp_path / "a.yaml"
        file.write_text(text)
        with pytest.raises(FileError):
            load_job(file)


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["selene", "llama3-8b", "dgx-a100-80gb", "none"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "base",
                    "model",
                    "plan",
                    "runtime",
                    "cluster",
                    "node",
                    "gpu",
                    "fabric",
                    "host",
                    "framework",
                    "tp",
                    "version",
                    "name",
                    "peak",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON_LIKE)
@examples(100)
def test_no_table_escapes_as_another_exception(table: Any) -> None:
    for source in (table, {"base": JOB, **table} if isinstance(table, dict) and "base" not in table else table):
        if isinstance(source, str):
            continue
        try:
            assert isinstance(load_job(source), Job)
        except SpecError as error:
            assert str(error)


@given(st.text(max_size=30), st.sampled_from(["", "plan.", "plan.tp=", "cluster.node=", "runtime.", "model="]))
@examples(100)
def test_no_override_escapes_as_another_exception(text: str, start: str) -> None:
    try:
        assert isinstance(load_job(JOB, [start + text]), Job)
    except SpecError as error:
        assert str(error)


CONTRADICTIONS: list[tuple[list[str], str, str]] = [
    (["plan.tp=5"], "plan.tp", "96"),
    (["plan.tp=4", "plan.dp=1", "cluster.gpus=64"], "plan.dp", "64"),
    (["plan.dp=2", "cluster.gpus=64"], "plan.dp", "dp = 1"),
    (["plan.dp=none", "cluster.gpus=60"], "cluster.gpus", "64"),
    (["plan.tp=5", "plan.dp=none", "cluster.gpus=40"], "plan.tp", "Divisors"),
    (["model.kv_heads=5"], "model.kv_heads", "heads"),
    (["model.heads=100"], "model.heads", "hidden"),
    (["model.kv_heads=12"], "plan.tp", "kv_heads"),
    (["plan.seq=2044"], "plan.seq", "Try 2048"),
    (["plan.seq=4096"], "plan.seq", "max_seq"),
    (["model.layers=95"], "plan.pp", "plan.stages"),
    (["model.layers=12"], "plan.pp", "at most"),
    (["plan.stages=[96]"], "plan.stages", "24 numbers"),
    (["plan.vpp=3", "plan.pp=1", "plan.dp=8"], "plan.vpp", "pp is 1"),
    (["plan.schedule=1f1b"], "plan.schedule", "interleaved"),
    (["plan.micro_batch=3"], "plan.global_batch", "Try 66"),
    (["plan.global_batch=60"], "plan.global_batch", "Try 64"),
    (["plan.shard_group=3"], "plan.shard_group", "divisor"),
    (["plan.recompute_layers=5"], "plan.recompute_layers", "4 layers"),
    (["cluster.node.nic=none"], "cluster.gpus", "no NIC"),
    (["cluster.fabric=none"], "cluster.fabric", "network"),
    (["runtime.precision=fp8"], "runtime.precision", "bf16"),
    (["plan.placement=['tp','tp','cp','dp','pp']"], "plan.placement", "once"),
    (["cluster.node.scale_up.size=3"], "cluster.node.scale_up.size", "8 GPUs"),
    (
        ["plan.dp=none", "cluster.gpus=192", "plan.global_batch=192", "cluster.node.gpus=24", "cluster.node.scale_up.size=16"],
        "cluster.node.scale_up.size",
        "24",
    ),
    (["plan.tp=2", "plan.pp=2", "plan.vpp=1", "plan.dp=3", "cluster.gpus=12"], "plan.global_batch", "Try 66"),
    (["plan.tp=1", "plan.pp=1", "plan.vpp=1", "plan.dp=12", "cluster.gpus=12", "plan.global_batch=12"], "cluster.gpus", "Try 16"),
    (["plan.tp=1", "plan.cp=3", "plan.pp=8", "plan.dp=1", "cluster.gpus=24"], "plan.seq", "cp"),
]


@pytest.mark.parametrize(("overrides", "path", "words"), CONTRADICTIONS, ids=[" ".join(c[0]) for c in CONTRADICTIONS])
def test_contradiction(overrides: list[str], path: str, words: str) -> None:
    job = load_job(JOB, overrides)
    with pytest.raises(PlanError) as caught:
        check(job)
    assert caught.value.path == path
    assert words in str(caught.value)


@given(
    gpus=st.integers(1, 10**7),
    tp=st.integers(1, 10**9),
    pp=st.integers(1, 10**9),
    vpp=st.integers(1, 10**9),
    layers=st.integers(1, 10**5),
    batch=st.integers(1, 10**9),
)
@examples(65)
def test_check_lets_only_whole_splits_through(gpus: int, tp: int, pp: int, vpp: int, layers: int, batch: int) -> None:
    job = load_job(
        JOB,
        [
            "plan.dp=none",
            f"cluster.gpus={gpus}",
            f"plan.tp={tp}",
            f"plan.pp={pp}",
            f"plan.vpp={vpp}",
            f"model.layers={layers}",
            f"plan.global_batch={batch}",
        ],
    )
    try:
        check(job)
    except PlanError:
        return
    assert job.dp * tp * pp == gpus and job.micro_batches * job.dp * job.plan.micro_batch == batch
    assert sum(sum(stage) for stage in job.layers_per_stage) == layers


def test_messages_are_short_whatever_was_given() -> None:
    error = SpecError("x", 10**5000, "a number")
    assert "too large to print" in str(error) and math.isfinite(len(str(error)))
    assert len(str(SpecError("x", "y" * 10**6, "text"))) < 200


def nouns(kind: type[Noun] = Noun) -> Iterator[type[Noun]]:
    for one in kind.__subclasses__():
        yield one
        yield from nouns(one)


def test_a_field_states_each_bound_once() -> None:
    """Of two bounds of a kind, pydantic checks only the last: that of the type would replace that of the field."""
    bounds = (annotated_types.Ge, annotated_types.Gt, annotated_types.Le, annotated_types.Lt)
    kinds = {
        f"{noun.__name__}.{name}": [type(mark) for mark in field.metadata if isinstance(mark, bounds)]
        for noun in nouns()
        for name, field in noun.model_fields.items()
    }
    assert len(kinds) > 200
    assert not [name for name, marks in kinds.items() if len(marks) != len(set(marks))]


@pytest.mark.parametrize(
    ("override", "path", "allowed"),
    [
        ("cluster.fabric.nic_ports=5", "cluster.fabric.nic_ports", "4"),
        ("cluster.fabric.planes=5", "cluster.fabric.planes", "4"),
        ("cluster.fabric.flows_per_connection=65", "cluster.fabric.flows_per_connection", "64"),
        ("unequal={spread=0.02,draws=1001}", "unequal.draws", "1000"),
        ("unequal={spread=0.02,unfold=1}", "unequal.unfold", "2"),
        ("unequal={spread=0.02,unfold=4097}", "unequal.unfold", "4096"),
    ],
)
def test_bounds_of_a_field_bind(override: str, path: str, allowed: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_job(JOB, [override])
    assert caught.value.path == path and allowed in str(caught.value)


@pytest.mark.parametrize("noun", ["model", "plan", "runtime", "cluster"])
def test_a_job_file_without_a_noun_is_shown_a_line_for_it(noun: str, tmp_path: Path) -> None:
    """The four lines that are shown make a job; without one of them, that one is named."""
    whole = {
        "model": 'model = "llama3-8b"',
        "plan": "plan = { tp = 2, micro_batch = 1, global_batch = 64, seq = 4096 }",
        "runtime": 'runtime = { framework = "megatron-core" }',
        "cluster": 'cluster = { base = "h100-ib", gpus = 16 }',
    }
    path = tmp_path / "job.toml"
    path.write_text("\n".join(whole.values()))
    assert load_job(path).plan.tp == 2
    path.write_text("\n".join(line for name, line in whole.items() if name != noun))
    with pytest.raises(SpecError, match=rf"^{noun}: got nothing.*For example: {noun} = "):
        load_job(path)
