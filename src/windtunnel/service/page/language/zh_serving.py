"""Chinese words of the section `serving`."""

WORDS = {
    "serving.title": "推理与强化学习",
    "serving.about": "模型每秒能服务多少请求，一步强化学习需要多久。",
}
