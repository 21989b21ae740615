"""Runs of a step: closed form, over a network engine, or of unequal ranks; all end in one StepRun."""
