"""From the normal form to a grammar whose texts are the schema's documents. Start with `convert.py`."""
