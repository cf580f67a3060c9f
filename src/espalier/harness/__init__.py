"""Proof before deployment: what a model or a configuration is worth, measured.

`cases/` are test cases and their files, `run.py` runs them on an engine, `checks.py` judges each output, `report/`
shows the results, `compare/` sets two runs side by side; `qa/` judges answers to questions. It knows no edge and no
engine's insides: an engine is what has `requests` and `serve`. Start reading with `run.py`.
"""
