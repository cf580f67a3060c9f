"""From messages, tools and a schema to the prompt: the model's own chat template, what it can do, and the texts
added where it lacks something. Engines call `render.py` alone.
"""
