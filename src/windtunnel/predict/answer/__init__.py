"""The parts of a prediction, read from the run of a step."""
