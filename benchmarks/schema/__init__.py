"""JSON Schema enforcement, measured: what compiles, what is judged right, and what it costs."""
