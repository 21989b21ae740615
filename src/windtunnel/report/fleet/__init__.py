"""A watched or kept run: in the terminal, as a page, and as a Perfetto trace."""
