"""Drawers of sheets: the terminal, a page, CSV. They know no domain."""
