"""Chinese words of the section `answer`."""

WORDS = {
    "answer.title": "答案",
    "answer.about": "任务需要什么，以及原因。",
}
