"""Where ranks sit, how they differ, and which of them are equal."""
