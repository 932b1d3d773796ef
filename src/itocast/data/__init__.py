"""Data: checked tables, windows over them, and named datasets."""
