"""Chat messages, tools and turns: rendering them into a prompt, and parsing a model's text back into reasoning, content
and calls. It knows no engine and no constraint. Start with `messages.py` and `tools.py`."""
