"""Test cases as values, the four standard ones, and their files in YAML, TOML and JSON. Start with `case.py`."""
