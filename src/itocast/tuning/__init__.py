"""A search for better settings than the defaults, and a guard that keeps these unless others are better for sure."""
