"""What is known of a trace of several ranks, from its events alone: steps, clocks, matched calls, the measured graph."""
