"""Collectives as lanes: streams of slices between ranks, with waits between them; both network engines run them."""
