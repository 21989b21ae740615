"""English words of the section `answer`."""

WORDS = {
    "answer.title": "Answer",
    "answer.about": "What a job takes, and why.",
}
