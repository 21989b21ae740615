"""A predicted step as Chakra execution traces."""
