"""English words of the section `choose`."""

WORDS = {
    "choose.title": "Choose",
    "choose.about": "Find the best plan, and what it costs.",
}
