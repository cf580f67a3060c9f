"""What engines over a `StepModel` share: rendering, encoding, compiling, running a strategy, and the result. It
knows no model library. Start with `engine.py`.
"""
