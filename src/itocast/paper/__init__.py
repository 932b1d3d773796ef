"""The paper's experiments, each in a file of its own."""
