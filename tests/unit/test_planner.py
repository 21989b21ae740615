"""Plans from the other end: targets in, models and machines out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.cli import main
from windtunnel.cli.shared.amounts import amount, counts
from windtunnel.predict import predict
from windtunnel.search.budget.data import as_dict
from windtunnel.search.budget.planner import Alternative, best_plan, plan
from windtunnel.search.budget.sheet import reasons, say_missed
from windtunnel.search.budget.wish import Sizing, Wish, check_wish, loss, tokens_for
from windtunnel.spec import load_job, load_law, load_model
from windtunnel.spec.scaling import LossLaw

LAW = load_law("epoch")
DAY = 86400.0
ONE = ("plan.tp=4", "plan.pp=1", "plan.micro_batch=1", "plan.recompute=full", "plan.sharding=zero1")
"""One way to place a model, so that no search of plans stands behind targets, money and days."""


def only(wish: Wish, overrides: Sequence[str] = (), gpus: int = 64, one: Sequence[str] = ONE) -> Alternative:
    answer = plan(wish, ["h100-ib"], [gpus], [*one, *overrides])
    assert len(answer.alternatives) == 1
    return answer.alternatives[0]


def test_a_deadline_is_used_up_at_the_predicted_rate() -> None:
    one = only(Wish(LAW, days=10.0))
    assert one.days == pytest.approx(10.0) and one.limits == ("deadline",) and one.good
    assert one.tokens == pytest.approx(one.prediction.tokens_per_s * 10 * DAY)
    assert one.loss == pytest.approx(loss(LAW, one.parameters, one.tokens))
    best, _ = Sizing(LAW).of(6 * one.parameters * one.tokens)
    assert one.parameters == pytest.approx(best, rel=0.12)  # the step from one shape to the next


def test_a_budget_is_spent() -> None:
    """$3 a GPU hour: 64 GPUs cost $192 an hour."""
    one = only(Wish(LAW, budget=46_080.0, days=30.0))
    assert one.days == pytest.approx(10.0) and one.limits == ("budget",)
    assert one.price.cost == pytest.approx(46_080.0)


def test_a_bought_cluster_spends_power_too() -> None:
    one = only(Wish(LAW, budget=46_080.0), ["cluster.economics.mode=buy"])
    assert one.price.cost_parts is not None and one.price.cost_parts["power"] > 0
    assert one.price.cost == pytest.approx(46_080.0)


def test_a_loss_fixes_the_work() -> None:
    one = only(Wish(LAW, loss=2.3, days=5.0, budget=1000.0))
    assert one.loss == pytest.approx(2.3)
    assert one.tokens == pytest.approx(tokens_for(LAW, one.parameters, 2.3))
    assert one.days == pytest.approx(one.tokens / one.prediction.tokens_per_s / DAY)
    assert not one.good and len(one.misses) == 1 and "budget by" in one.misses[0]


def test_lost_days_do_not_train() -> None:
    whole, most = only(Wish(LAW, days=10.0, parameters=8e9)), only(Wish(LAW, days=10.0, parameters=8e9, goodput=0.8))
    assert most.days == pytest.approx(10.0) and most.tokens == pytest.approx(0.8 * whole.tokens)
    assert most.price.cost == pytest.approx(whole.price.cost)


def test_a_model_and_its_tokens_need_no_target() -> None:
    model = load_model("llama3-8b")
    one = only(Wish(LAW, model=model, parameters=8.03e9, tokens=1e11))
    assert one.prediction.job.model == model and one.tokens == 1e11
    assert one.naive is None


def test_the_peak_promises_too_much() -> None:
    one = only(Wish(LAW, days=10.0, tokens_per_parameter=20.0))
    assert one.naive is not None and one.naive_days is not None
    assert one.tokens / one.parameters == pytest.approx(20.0, rel=0.25)
    assert one.naive[0] > 1.2 * one.parameters and one.naive_days > 12.0


def test_the_case_of_vtrain() -> None:
    """Bang et al. (MICRO 2024, from memory): 3,360 A100 for 30 days. Chinchilla with peak FLOP/s says 145.6 billion parameters,
    with what their plans reach 76.0 billion. Theirs are GPT models of Megatron-DeepSpeed with full recompute."""
    sets = ["runtime.framework=megatron-deepspeed", "plan.recompute=full", "plan.seq=2048"]
    one = plan(Wish(LAW, days=30.0, tokens_per_parameter=20.0), ["a100-ib"], [3360], sets).alternatives[0]
    assert one.naive is not None and one.naive[0] == pytest.approx(145.6e9, rel=0.05)
    assert one.parameters == pytest.approx(76.0e9, rel=0.15)


def test_the_plan_can_be_predicted_again() -> None:
    answer = as_dict(plan(Wish(LAW, days=10.0, model=load_model("llama3-8b"), parameters=8.03e9), ["h100-ib"], [64]))
    row = answer["alternatives"][0]
    table = {"model": "llama3-8b", "runtime": {"framework": "megatron-core"}, "cluster": "h100-ib", "plan": {}}
    again = predict(load_job(table, ["cluster.gpus=64", *row["sets"]]))
    assert again.step_time_s == pytest.approx(row["step_time_s"])
    assert json.dumps(answer) and answer["meets_all"] and answer["law"]["id"] == "epoch"


def test_another_search_can_stand_behind_it() -> None:
    asked = []

    def other(model: Any, cluster: Any, overrides: Any) -> Any:
        asked.append((model.name, overrides))
        return best_plan(model, cluster, overrides)

    plan(Wish(LAW, days=3.0), ["h100-ib"], [8], ONE, planned=other)
    assert asked and all("cluster.gpus=8" in overrides for _, overrides in asked)


def test_the_search_keeps_what_is_stated() -> None:
    p = best_plan(load_model("llama3-8b"), "h100-ib", ["cluster.gpus=64", "plan.pp=4", "plan.vpp=1", "plan.schedule=1f1b"])
    assert (p.job.plan.pp, p.job.plan.vpp, p.job.plan.schedule_name, p.job.cluster.gpus) == (4, 1, "1f1b", 64)
    assert p.job.cluster.slow_nodes > 0.0  # the machine is not a choice here


def test_numbers_of_gpus_suit_the_targets() -> None:
    """$3 a GPU hour: $1,105,920 pay 512 GPUs for 30 days."""
    answer = plan(Wish(LAW, budget=1_105_920.0, days=30.0), ["h100-ib"], overrides=("plan.vpp=1", "plan.recompute=full"))
    assert sorted(one.machine.cluster.gpus for one in answer.alternatives) == [256, 512, 1024]
    assert list(reasons(answer))[0].startswith("Best: ")


def test_what_meets_the_targets_comes_first() -> None:
    answer = plan(Wish(LAW, loss=2.2, days=4.0), ["h100-ib"], [16, 64, 256], ONE)
    good = [one.good for one in answer.alternatives]
    assert good == sorted(good, reverse=True) and True in good and False in good


@pytest.mark.parametrize(
    ("wish", "where", "why"),
    [
        (Wish(LAW), "plan", "at least one of"),
        (Wish(LAW, days=-1.0), "--days", "above 0"),
        (Wish(LAW, days=float("nan")), "--days", "above 0"),
        (Wish(LAW, days=1e6), "--days", "ten years"),
        (Wish(LAW, days=1.0, goodput=0.0), "--goodput", "above 0"),
        (Wish(LAW, days=1.0, goodput=1.5), "--goodput", "at most 1"),
        (Wish(LAW, budget=1.0), "--budget", "an hour of one GPU"),
        (Wish(LAW, loss=1.5), "--loss", "no model of any size"),
        (Wish(LAW, loss=2.0, parameters=1e9), "--loss", "ever more tokens"),
        (Wish(LAW, loss=2.0, parameters=7e9, tokens=1e12), "--loss", "they decide it"),
        (Wish(LAW, days=9.0, tokens=1e9, tokens_per_parameter=20.0), "--tokens-per-parameter", "without"),
        (Wish(LAW, days=1e-7), "deadline", "one step"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_what_would_do(wish: Wish, where: str, why: str) -> None:
    with pytest.raises(SpecError, match=why) as raised:
        plan(wish, ["h100-ib"], [64])
    assert raised.value.path == where


def test_clusters_are_named_and_priced() -> None:
    with pytest.raises(UnknownName, match="h100-ib"):
        plan(Wish(LAW, days=1.0), ["h100"])
    with pytest.raises(SpecError, match="price"):
        plan(Wish(LAW, budget=1e6), ["h100-ib"], overrides=["cluster.price_per_gpu_hour=none"])
    with pytest.raises(SpecError, match="--on"):
        plan(Wish(LAW, days=1.0), ["h100-ib"], overrides=["cluster=a100-ib"])
    with pytest.raises(SpecError, match="whole nodes"):
        plan(Wish(LAW, days=1.0), ["h100-ib"], [12])


def test_an_impossible_machine_is_left_out_with_its_reason() -> None:
    answer = plan(Wish(LAW, days=1.0, parameters=8e9), ["h100-ib"], [12, 64], ONE)
    assert [one.machine.cluster.gpus for one in answer.alternatives] == [64]
    assert "12 GPUs" in answer.left_out[0] and "Left out" in list(reasons(answer))[-1]


@pytest.mark.parametrize(
    ("text", "number"), [("2M", 2e6), ("$1.5e6", 1.5e6), ("250k", 250e3), ("2T", 2e12), ("1_000", 1000.0), (".5", 0.5)]
)
def test_amounts(text: str, number: float) -> None:
    assert amount(text, "--budget") == number


@pytest.mark.parametrize("text", ["", "0", "-3", "2X", "nan", "1e999", "two", "M"])
def test_amounts_that_are_none(text: str) -> None:
    with pytest.raises(SpecError, match="--budget"):
        amount(text, "--budget")
    with pytest.raises(SpecError, match="--gpus"):
        counts("8,x", "--gpus")


def test_the_verb_prints_json_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    law, file = tmp_path / "mine.toml", tmp_path / "plan.json"
    law.write_text('E = 1.7\nA = 400.0\nB = 2000.0\nalpha = 0.34\nbeta = 0.36\nsource = "mine"\n', encoding="utf-8")
    sets = [word for one in ONE[1:] for word in ("--set", one)]
    asked = ["plan", "--days", "5", "--on", "h100-ib", "--gpus", "16", "--law", str(law), *sets]
    assert main([*asked, "--json", str(file)]) == 0
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["schema"] == "windtunnel.plan/1" and data["law"]["E"] == 1.7
    shown = " ".join(capsys.readouterr().out.split())
    assert "Best: 16 GPUs of h100-ib" in shown and "The deadline binds." in shown


def test_more_money_never_trains_worse() -> None:
    losses = [only(Wish(LAW, budget=money)).loss for money in (5e3, 2e4, 1e5)]
    assert losses == sorted(losses, reverse=True)


def test_checked_keeps_a_good_wish() -> None:
    law: LossLaw = LAW
    assert check_wish(Wish(law, budget=1e6, loss=2.0)) == Wish(law, budget=1e6, loss=2.0)


def test_data_that_money_does_not_reach_is_a_miss() -> None:
    one = only(Wish(LAW, budget=1000.0, tokens=1e18), one=ONE[1:])
    assert not one.good
    assert "tokens by" in one.misses[0]
    one = only(Wish(LAW, budget=1000.0, tokens_per_parameter=1e9), one=ONE[1:])
    assert "tokens by" in one.misses[0]


def test_a_model_smaller_than_the_rule_builds_is_refused() -> None:
    with pytest.raises(SpecError, match="--parameters: got 1.0; allowed: at least"):
        only(Wish(LAW, budget=1e4, parameters=1.0))


def test_a_budget_that_fewer_gpus_keep_is_not_called_impossible() -> None:
    """235 billion parameters on 5 trillion tokens cost $3.1M on 2,048 GPUs of B200 and $2.85M on 128, with few choices of plans."""
    fixed = ["plan.tp=1", "plan.etp=1", "plan.vpp=1", "plan.sharding=zero1", "plan.recompute=full", "runtime.moe_a2a_overlap=false"]
    fixed.append("cluster.node.host_speed=50")
    wish = Wish(LAW, budget=2.9e6, days=190.0, model=load_model("qwen3-235b-a22b"), parameters=2.35e11, tokens=5e12)
    best = plan(wish, ["b200-ib"], (), fixed).alternatives[0]
    assert best.good and best.machine.cluster.gpus < 384


def test_numbers_are_searched_upwards_until_a_model_fits() -> None:
    """$2,000 rent one H100 for 30 days, on which the state of 8 billion parameters does not fit."""
    answer = plan(Wish(LAW, budget=2000.0, days=30.0, model=load_model("llama3-8b"), parameters=8.03e9), ["h100-ib"])
    assert answer.alternatives[0].good and answer.alternatives[0].machine.cluster.gpus >= 2


def test_the_deadline_and_the_budget_bind() -> None:
    """The cheapest number comes first, and the quickest within the budget is shown, beyond which money runs out."""
    model = load_model("llama3-8b")
    wish = Wish(LAW, budget=60e3, days=30.0, model=model, parameters=8.03e9, tokens=2.5e11)
    good = [one for one in plan(wish, ["h100-ib"], overrides=ONE).alternatives if one.good]
    assert good[0].price.cost == min(one.price.cost for one in good)
    assert max(one.machine.cluster.gpus for one in good) > min(one.machine.cluster.gpus for one in good)


def test_rows_say_by_how_much_they_miss_and_what_they_assume() -> None:
    model = load_model("llama3-8b")
    wish = Wish(LAW, budget=1e4, days=1.0, model=model, parameters=8.03e9, tokens=1e12)
    answer = plan(wish, ["b200-ib", "mi355x-roce"], [64])
    assert all(not one.good for one in answer.alternatives)
    said = [say_missed(one) for one in answer.alternatives]
    assert all("over by $" in text and "late by" in text for text in said)
    by_name = {one.machine.name: one.assumed for one in answer.alternatives}
    assert by_name == {"b200-ib": ("price",), "mi355x-roce": ("price", "kernels")}
    stated = plan(wish, ["b200-ib"], [64], ["cluster.price_per_gpu_hour=4.5"]).alternatives[0]
    assert stated.assumed == () and stated.machine.dollars_per_gpu_hour == pytest.approx(4.5)


def test_a_winner_that_is_assumed_names_the_best_that_is_not() -> None:
    wish = Wish(LAW, model=load_model("llama3-8b"), parameters=8.03e9, tokens=1e12)
    lines = "\n".join(reasons(plan(wish, ["b200-ib", "mi355x-roce"], [64])))
    assert "The winner rests on an assumption: the time of its kernels" in lines and "GPUs of b200-ib" in lines


def test_buying_names_capital_share_and_break_even() -> None:
    wish = Wish(LAW, model=load_model("llama3-8b"), parameters=8.03e9, tokens=1e12)
    answer = plan(wish, ["h100-ib"], [64], ["cluster.economics.mode=buy", "cluster.economics.node_dollars=300000"])
    own = answer.alternatives[0].ownership
    assert own is not None and own.capital > 8 * 300e3 and own.years == 4.0 and own.months is not None and 3.0 < own.months < 48.0
    assert "share of 4 years" in "\n".join(reasons(answer))


def test_failures_lengthen_a_run_and_say_so() -> None:
    wish = Wish(LAW, model=load_model("llama3-8b"), parameters=8.03e9, tokens=1e12)
    plain = plan(wish, ["h100-ib"], [64]).alternatives[0]
    failing = plan(wish, ["h100-ib"], [64], ["reliability=llama3-2024"])
    one = failing.alternatives[0]
    assert one.days == pytest.approx(plain.days / one.ettr) and 0.5 < one.ettr < 1.0
    assert "by the failures of llama3-2024" in "\n".join(reasons(failing))
    with pytest.raises(SpecError, match="--goodput"):
        plan(replace(wish, goodput=0.9), ["h100-ib"], [64], ["reliability=llama3-2024"])
    with pytest.raises(SpecError, match="--tokens 1T"):
        plan(wish, ["h100-ib"], [64], ["tokens=1T"])
