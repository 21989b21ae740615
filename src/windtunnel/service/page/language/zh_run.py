"""Chinese words of the section `run`."""

WORDS = {
    "run.title": "运行",
    "run.about": "正在监视的任务。",
}
