"""The scripts of report pages, run in a real browser."""
