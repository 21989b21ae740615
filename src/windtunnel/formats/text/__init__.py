"""How the bytes of a file become lines, tables or trees, with limits on size and nesting. Knows no format."""
