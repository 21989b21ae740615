"""Mutants of the formulas: is there a test that notices when one of them is wrong? `python -m tests.mutants`, `make mutants`."""
