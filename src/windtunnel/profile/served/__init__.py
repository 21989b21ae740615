"""Forward passes of an inference server that runs, as its client sees them: no device of ours, no import of the engine."""
