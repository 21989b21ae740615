"""Megatron-LM's command line to model, plan and runtime: a file for each group of flags."""
