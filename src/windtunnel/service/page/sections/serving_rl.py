"""A step of reinforcement learning, of `serving`: its phases over time, who waits, and what each holds in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, draw_chart, show_command, show_numbers
from windtunnel.service.page.charts.served import phase_memory, phase_spans
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, sets_of
from windtunnel.service.page.frame import card
from windtunnel.sheet import numbers as say

EXAMPLE = """workload = "rl"
name = "math-7b"
model = "qwen2.5-7b"

[cluster]
base = "h100-ib"
gpus = 8

[rl]
algorithm = "grpo"
prompts = 64
samples = 8
prompt = "200~0.5<1024"
response = "600~1<2048"
"""
JOB, SCRIPT, TABLES = "job.toml", "run.sh", "job.yaml"


def build_rl(context: PageContext, form: Form) -> None:
    """Builds the card."""
    say_ = context.say
    with card(say_("serving.rl"), say_("serving.rl_about"), "rl"):
        with ui.element("div").classes("wt-form"):
            form.lines("job", say_("serving.rl_job"), EXAMPLE)
            form.text("on", say_("serving.rl_on"), hint="h100-ib")
            form.text("set", say_("serving.sets"), wide=True, hint="rl.mode=async rl.rollout.gpus=4 cluster.gpus=16")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.rl_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda table, asked: _draw_step(context, table, asked), "rl-answer")

    ask_on_click(form, "run", go, lambda: asking.run(lambda: wanted_step(form)))


def wanted_step(form: Form) -> Wanted:
    """The question of the form: its text becomes a file of the name that its content asks for."""
    text = form.value("job").strip() + "\n"
    name = file_name(text)
    arguments: dict[str, Any] = {"job": name}
    if machine := form.value("on").strip():
        arguments["on"] = machine
    if sets := sets_of(form.value("set")):
        arguments["set"] = sets
    return Wanted("rl-predict", arguments, {name: text}, PAGE)


def file_name(text: str) -> str:
    """The name of a file with this text: a job, a launch script, or a YAML of a trainer."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if any(line.startswith("[") or line.replace(" ", "").startswith("workload=") for line in lines):
        return JOB
    if text.startswith("#!") or any(word in text for word in ("python", "ray ", "trl ", "--")):
        return SCRIPT
    return TABLES


def _draw_step(context: PageContext, table: Mapping[str, Any], asked: Asked) -> None:
    say_, error = context.say, say.error_words(table.get("relative_error"))
    show_numbers([
        (say_("serving.step"), say.seconds(table["step_time_s"]) + error),
        (say_("serving.step_dollars"), f"{table['dollars_per_step']:.3g}{error}"),
        (say_("serving.rl_tokens"), f"{table['tokens_per_s_gpu']:,.0f}"),
        (say_("serving.rollout_time"), say.seconds(table["rollout"]["seconds"])),
        (say_("serving.tail"), say.seconds(table["rollout"]["tail"])),
        (say_("serving.fits"), say_("serving.yes" if table["fits"] else "serving.no")),
    ])  # fmt: skip
    with ui.element("ul").classes("wt-sentences"):
        for sentence in (*table["waits"], *table["warnings"], *table["notes"]):
            with ui.element("li"):
                ui.label(sentence)
    spans, memory = table["spans"], table["memory"]
    with ui.element("div").classes("wt-two"):
        with ui.element("div"):
            ui.html(say_("serving.timeline"), tag="h3", sanitize=False)
            draw_chart(phase_spans(spans, say_("serving.seconds_of_step")), say_("serving.timeline"), 90 + 34 * len(spans))
        with ui.element("div"):
            ui.html(say_("serving.memory"), tag="h3", sanitize=False)
            draw_chart(phase_memory(memory, say_("serving.gigabytes")), say_("serving.memory"), 130 + 34 * len(memory))
    show_command(context, asked.command, asked.key)
