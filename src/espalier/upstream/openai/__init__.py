"""Any OpenAI-compatible server as an engine: `body.py` writes requests, `chunks.py` reads streams, `engine.py`
generates."""
