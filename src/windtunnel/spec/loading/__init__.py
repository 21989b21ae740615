"""Reads nouns from catalogue names, files and tables, and writes them."""
