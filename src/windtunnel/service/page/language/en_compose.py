"""English words of the section `compose`."""

WORDS = {
    "compose.title": "Compose",
    "compose.about": "Describe a job and see what one step of it takes.",
}
