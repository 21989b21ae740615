"""English words of the section `network`."""

WORDS = {
    "network.title": "Network",
    "network.about": "The fabric, its links and its collectives.",
}
