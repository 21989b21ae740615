"""Chinese words of the section `compose`."""

WORDS = {
    "compose.title": "编写",
    "compose.about": "描述一个训练任务，查看一步需要多久。",
}
