"""Spaces: which combinations are plans, each once, and values that follow others."""

import json
import math

import pytest

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.cli import main
from windtunnel.jobs.load import load_described_job as job_of
from windtunnel.jobs.search_space import question
from windtunnel.search.bound.cells import lies_apart, with_few_batches
from windtunnel.search.defaults import default_fields
from windtunnel.search.space import BY_SPEED, EVEN, LIGHT_ENDS, WITH_TP, Space, micro_batches, split_values, stages_of
from windtunnel.spec import check, load_job

JOB = load_job("llama2-70b-64xh100", ["plan.global_batch=256", "plan.vpp=1"])


def plans(fields, job=JOB):
    columns = Space(job, fields).columns()
    return [dict(columns.change(number).fields) for number in range(len(columns))]


def test_degrees_divide_the_gpus_and_batches_divide():
    columns = Space(JOB, {"plan.tp": (1, 2, 3, 4), "plan.pp": (1, 2, 4), "plan.micro_batch": (1, 3)}).columns()
    # tp = 3 does not divide 64 GPUs; 3 sequences a micro batch never divide 256
    assert len(columns) == 9
    assert set(columns.numbers("plan.tp").tolist()) == {1, 2, 4}
    split = columns.numbers("plan.tp") * columns.numbers("plan.pp")
    assert (micro_batches(columns) == 256 * split // 64).all()


def test_virtual_stages_need_stages_and_rounds():
    found = {(plan["plan.pp"], plan["plan.vpp"]) for plan in plans({"plan.pp": (1, 4), "plan.vpp": (1, 2, 40)})}
    assert found == {(1, 1), (4, 1), (4, 2)}  # 4 x 40 is more than 80 layers; one stage has no virtual ones


def test_each_plan_is_spelled_once():
    both = plans({"plan.tp": (1, 2), "plan.pp": (1,), "plan.sequence_parallel": (False, True)})
    assert [(plan["plan.tp"], plan["plan.sequence_parallel"]) for plan in both] == [(1, False), (2, False), (2, True)]
    alone = plans({"plan.tp": (8,), "plan.pp": (8,), "plan.sharding": ("none", "zero1")})
    assert [plan["plan.sharding"] for plan in alone] == ["none"]


def test_values_follow_others():
    job = load_job("deepseek-v3-2048xh800")  # recompute_modules and stages are stated there
    columns = Space(job, {"plan.recompute": ("none", "selective"), "plan.pp": (8, 16), "plan.schedule": ("auto",)}).columns()
    changes = [dict(columns.change(number).fields) for number in range(len(columns))]
    assert all(("plan.recompute_modules" in change) == (change["plan.recompute"] == "none") for change in changes)
    assert {len(change["plan.stages"]) for change in changes if change["plan.stages"]} == {8, 16}
    for number in range(len(columns)):
        check(columns.change(number).apply(job))
    parallel = plans({"plan.tp": (1, 4), "plan.sequence_parallel": (WITH_TP,)})
    assert [plan["plan.sequence_parallel"] for plan in parallel] == [False, True]


def test_layouts():
    assert stages_of(EVEN, 80, 4) is None
    assert stages_of(EVEN, 61, 4) == (16, 15, 15, 15)
    assert stages_of(LIGHT_ENDS, 126, 16) == (7, *(8,) * 14, 7)
    slow = load_job("llama2-70b-64xh100", ["plan.global_batch=256", "unequal.slow=[{stages=[0],factor=2.0}]"])
    (plan,) = plans({"plan.tp": (8,), "plan.pp": (2,), "plan.stages": (BY_SPEED,), "plan.vpp": (1,)}, slow)
    assert plan["plan.stages"] == (27, 53)  # 80 layers at speeds 1 : 2


@pytest.mark.parametrize(
    "name", ["llama2-70b-64xh100", "deepseek-v3-2048xh800", "llama3-8b-8xh100", "bloom-176b-384", "mpt-30b-64xa100"]
)
def test_the_default_space_has_the_jobs_own_plan(name):
    job = load_job(name)
    columns = Space(job, default_fields(job)).columns()
    own = [
        n for n in range(len(columns)) if columns.change(n).apply_unchecked(job).plan == job.plan.model_copy(update={"dp": None})
    ]
    assert len(own) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"plan.tp": (3, 5)}, "divides cluster.gpus = 64"),
        ({"plan.micro_batch": (7,)}, "plan.global_batch"),
        ({"plan.pp": (1,), "plan.vpp": (2,)}, "vpp = 1 where pp is 1"),
    ],
)
def test_an_empty_space_says_what_emptied_it(fields, words):
    with pytest.raises(SpecError, match=words):
        Space(JOB, fields).columns()


def test_too_many_plans_are_refused():
    with pytest.raises(SpecError, match="Give .* fewer values"):
        Space(JOB, {f"plan.document{n}": tuple(range(100)) for n in range(5)}).columns()


def test_values_are_split_outside_of_brackets():
    assert split_values("plan.tp", "4,8") == ["4", "8"]
    assert split_values("plan.stages", "[40,40],[39,41]") == ["[40,40]", "[39,41]"]
    with pytest.raises(SpecError):
        split_values("plan.tp", "4,,8")


def load(overrides):
    return job_of("llama2-70b-64xh100", overrides)


def test_set_opens_closes_and_makes_frames():
    asked = question(load, ["plan.tp=4,8", "plan.pp=4", "cluster.gpus=64,128", "runtime.overlap_tp=true,false"], None, ())
    assert asked.labels == ("64 GPUs", "128 GPUs")
    fields = asked.spaces[0].fields
    assert fields["plan.tp"] == (4, 8)
    assert "plan.pp" not in fields
    assert fields["runtime.overlap_tp"] == (True, False)
    assert asked.spaces[1].job.cluster.gpus == 128
    assert asked.spaces[0].job.plan.pp == 4
    assert asked.overrides[1] == ("plan.pp=4", "cluster.gpus=128")


def test_a_space_file(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text('[plan]\ntp = [4, 8]\nstages = ["even", "light-ends"]\n[runtime]\nprecision = ["bf16", "fp8"]\n')
    asked = question(load, [], str(path), ())
    assert asked.spaces[0].fields["plan.stages"] == ("even", "light-ends")
    assert [space.job.runtime.precision for space in asked.spaces] == ["bf16", "fp8"]
    path.write_text("plan.tp = 4\n")
    with pytest.raises(SpecError, match="a list of values"):
        question(load, [], str(path), ())


def test_unknown_fields_and_values_are_refused():
    with pytest.raises(UnknownName, match="plan.tp"):
        question(load, ["plan.tensor=1,2"], None, ())
    with pytest.raises(SpecError):
        question(load, ["plan.tp=4,x"], None, ())
    with pytest.raises(UnknownName, match="by-speed, even, light-ends, light-last. Did you mean 'even'"):
        question(load, ["plan.stages=even,evn"], None, ())
    with pytest.raises(SpecError, match="values to try"):
        question(load, ["plan.tp"], None, ())


def test_a_job_whose_plan_cannot_run_there_is_searched_all_the_same():
    asked = question(load, ["cluster.gpus=24", "plan.global_batch=96"], None, ())  # the job's own plan is tp 4, pp 4
    assert asked.spaces[0].job.cluster.gpus == 24
    assert asked.own == "The plan without model parallelism"
    assert 3 in asked.spaces[0].fields["plan.pp"]
    with pytest.raises(SpecError, match="plan.tp"):
        question(load, ["cluster.gpus=24", "plan.tp=5"], None, ())


def test_a_value_that_is_named_twice_is_tried_once(tmp_path):
    asked = question(load, ["plan.tp=4,8,4", "cluster.gpus=64,64"], None, ())
    assert asked.spaces[0].fields["plan.tp"] == (4, 8)
    assert len(asked.spaces) == 1
    empty = tmp_path / "space.toml"
    empty.write_text("[plan]\n")
    with pytest.raises(SpecError, match=r"space.toml: got 'no field'"):
        question(load, [], str(empty), ())


def test_an_emptied_space_names_the_fields_of_the_rule_alone():
    job = load_job("llama2-70b-64xh100")
    with pytest.raises(SpecError, match=r"plan.tp=3,5'; .*divides cluster.gpus = 64.*plan.cp=1, plan.pp=4 as stated") as caught:
        Space(job, {"plan.tp": (3, 5), "plan.recompute": ("none", "full")}).columns()
    assert "recompute" not in str(caught.value)


def test_a_dry_run_has_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "plan.tp=1,2,3", "--set", "plan.recompute=none", "--dry-run", "--json", "-"]
    assert main(["search", "llama3-8b-8xh100", *words]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["schema"] == "windtunnel.space/1" and table["gpus"] == 8
    assert table["fields"]["plan.tp"] == ["1", "2", "3"] and "plan.recompute" not in table["fields"]
    assert table["combinations"] == math.prod(len(values) for values in table["fields"].values())


@pytest.mark.parametrize(
    ("sets", "micro_batches"),
    [
        (["plan.pp=4"], 4),  # a round
        (["plan.pp=4", "plan.schedule=dualpipe"], 8),  # two rounds at least
        (["plan.pp=4", "plan.vpp=2", "plan.schedule=dualpipev"], 8),
        (["plan.pp=4", "runtime.moe_a2a_overlap=true"], 8),  # pairs of micro batches
    ],
)
def test_a_layout_is_that_of_few_micro_batches(sets, micro_batches):
    """Of 2 sequences each on 64 GPUs."""
    job = load_job("llama2-70b-64xh100", ["plan.global_batch=256", "plan.vpp=1", "plan.micro_batch=2", "plan.tp=1", *sets])
    assert with_few_batches(job).plan.global_batch == micro_batches * 2 * job.dp


@pytest.mark.parametrize(
    ("placement", "apart"),
    [
        (("tp", "cp", "ep", "dp", "pp"), False),
        (("tp", "cp", "dp", "ep", "pp"), False),  # experts lie among replicas wherever they are named
        (("cp", "tp", "dp", "pp"), False),
        (("tp", "cp", "ep", "pp", "dp"), True),
        (("tp", "dp", "ep", "cp", "pp"), True),
    ],
)
def test_ranks_of_a_micro_batch_lie_together_where_replicas_and_stages_come_last(placement, apart):
    assert lies_apart(placement) == apart


@pytest.mark.parametrize(
    ("gpus", "kept"),
    [
        (64, [(1, "fsdp"), (1, "hsdp"), (2, "fsdp"), (2, "hsdp"), (8, "fsdp")]),  # tp 8 leaves one rank of a node
        (8, [(1, "fsdp"), (2, "fsdp"), (8, "none")]),  # a node is all there is
        (24, [(1, "fsdp"), (1, "hsdp"), (2, "fsdp"), (2, "hsdp"), (8, "fsdp")]),
        (12, [(1, "fsdp"), (2, "fsdp")]),  # 12 ranks are one and a half nodes
    ],
)
def test_hybrid_sharding_needs_whole_groups_of_a_node(gpus, kept):
    """Without data-parallel ranks nothing is sharded."""
    job = load_job("llama3-8b-8xh100", [f"cluster.gpus={gpus}", f"plan.global_batch={gpus}", "plan.pp=1", "plan.cp=1"])
    ways = plans({"plan.tp": (1, 2, 8), "plan.sharding": ("none", "fsdp", "hsdp")}, job)
    found = [(plan["plan.tp"], plan["plan.sharding"]) for plan in ways]
    assert [pair for pair in found if pair[1] != "none" or pair[0] * 1 == gpus] == kept


def test_default_fields_by_hand():
    """32 heads, 8 experts and batches of 256 and 64 sequences, of 4,096 and 8,192 tokens."""
    found = default_fields(
        load_job("mixtral-8x7b-64xh100", ["model.experts=12", "plan.ep=4", "plan.global_batch=192", "model.kv_heads=8"])
    )
    assert (found["plan.tp"], found["plan.cp"], found["plan.ep"]) == ((1, 2, 4, 8), (1,), (1, 2, 4))
    assert found["plan.micro_batch"] == (1, 2, 4, 8)
    dense = default_fields(load_job("llama3-8b-8xh100", ["plan.global_batch=48", "plan.seq=16384"]))
    assert (dense["plan.tp"], dense["plan.cp"], dense["plan.micro_batch"]) == ((1, 2, 4, 8), (1, 2, 4), (1, 2, 4, 8))
    assert "plan.ep" not in dense and dense["plan.sharding"] == ("fsdp", "hsdp")
