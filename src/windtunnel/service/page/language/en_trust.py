"""English words of the section `trust`."""

WORDS = {
    "trust.title": "Trust",
    "trust.about": "Predicted against measured.",
}
