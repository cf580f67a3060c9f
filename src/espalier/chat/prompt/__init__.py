"""Messages, tools and a schema to the prompt text: the model's own chat template, a test of what it supports, and
instructions where it supports too little. Engines call only `render.py`."""
