"""The benchmark against other tools: settings, features, peers, scores and the page; `benchmarks/peers.py` runs it."""
