"""Hugging Face `config.json` to a Model: a file for each group of model types."""
