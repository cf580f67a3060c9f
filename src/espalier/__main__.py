"""`python -m espalier` is the `espalier` command."""

from espalier.cli.main import run

run()
