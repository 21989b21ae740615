"""English words of the section `run`."""

WORDS = {
    "run.title": "Runs",
    "run.about": "Jobs that are watched.",
}
