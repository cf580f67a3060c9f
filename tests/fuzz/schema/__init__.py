"""Random schemas and texts near them, judged by `jsonschema`: which wrong texts are accepted. Start with `run.py`."""
