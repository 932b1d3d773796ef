"""Short series: public tasks, known laws, and the least rows; `benchmarks/short.py` runs it."""
