"""Fuzzers: random specs and texts near them, each judged by an oracle that shares no code with the matcher.

Start with `python -m benchmarks.fuzz KIND` (`command.py`). `session.py` runs a fuzzer, `cases.py` tries the texts of
one case, and each kind has a module that draws specs and judges texts.
"""
