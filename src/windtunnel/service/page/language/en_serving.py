"""English words of the section `serving`."""

WORDS = {
    "serving.title": "Serving and RL",
    "serving.about": "How many requests a model serves, and how long a step of reinforcement learning takes.",
}
