"""llama-server as an engine: `client.py` knows its routes, `vocabulary.py` reads its tokens, `engine.py` generates."""
