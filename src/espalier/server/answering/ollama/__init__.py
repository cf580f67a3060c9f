"""Builds replies of Ollama's routes: whole ones, the lines of a stream, errors, what is told of the model. It waits for
nothing.
"""
