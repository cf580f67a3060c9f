"""Measures JSON Schema enforcement: what compiles, which instances are judged right, and how long masks take."""
