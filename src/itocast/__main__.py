"""`python -m itocast` is the command line."""

from itocast.cli import run

run()
