"""Reports of a prediction: terminal, JSON, timeline, page, and comparison of two."""
