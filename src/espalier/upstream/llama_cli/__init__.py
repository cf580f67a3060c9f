"""llama.cpp's one-shot program as an engine: `program.py` runs it, `output.py` reads what it prints, `engine.py`
generates; `client.py` is the client with setters that PedroCLI has."""
