"""The engine over any `StepModel`: renders, encodes, compiles, runs a strategy, builds the result. It knows no model
library. Start with `engine.py` and `run_maker.py`."""
