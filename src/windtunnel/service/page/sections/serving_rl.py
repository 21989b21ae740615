"""A step of reinforcement learning, of `serving`: its phases over time, who waits, and what each holds in memory."""

from __future__ import annotations

from nicegui import ui

from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, sets_of
from windtunnel.service.page.frame import card
from windtunnel.service.page.sheets import SHEET, show_sheet

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
JOB, SCRIPT, TABLES, LOG = "job.toml", "run.sh", "job.yaml", "console.log"


def build_rl(context: PageContext, form: Form) -> None:
    """Builds the card."""
    say_ = context.say
    with card(say_("serving.rl"), say_("serving.rl_about"), "rl"):
        with ui.element("div").classes("wt-form"):
            form.lines("job", say_("serving.rl_job"), EXAMPLE)
            form.option("on", say_("serving.rl_on"), hint="h100-ib")
            form.text("set", say_("serving.sets"), wide=True, hint="rl.mode=async rl.rollout.gpus=4 cluster.gpus=16")
            log = form.lines("log", say_("serving.rl_log"), hint="step:1 - timing_s/gen:98.4 - timing_s/step:181.0", kept=False)
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.rl_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "rl-answer")

    ask_on_click(form, "run", go, lambda: asking.run(lambda: wanted_step(form, str(log.value or ""))))


def wanted_step(form: Form, log: str = "") -> Wanted:
    """The question of the form: its text becomes a file of the name that its content asks for. `log`: text of a console log, whose
    phases stand beside predicted ones."""
    text = form.value("job").strip() + "\n"
    name = file_name(text)
    arguments = {"job": name, **form.arguments("on")}
    if sets := sets_of(form.value("set")):
        arguments["set"] = sets
    files = {name: text}
    if log.strip():
        arguments["log"], files[LOG] = LOG, log.strip() + "\n"
    return Wanted("rl-predict", arguments, files, SHEET)


def file_name(text: str) -> str:
    """The name of a file with this text: a job, a launch script, or a YAML of a trainer."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if any(line.startswith("[") or line.replace(" ", "").startswith("workload=") for line in lines):
        return JOB
    if text.startswith("#!") or any(word in text for word in ("python", "ray ", "trl ", "--")):
        return SCRIPT
    return TABLES
