"""Self-contained HTML pages: readable offline, light and dark."""
