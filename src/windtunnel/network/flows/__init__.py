"""Plain flows over a fabric: lists of them, and their completion times at each fidelity."""
