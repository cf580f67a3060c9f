"""A fuzzer of parsers: whatever bytes come, a parser gives a value or an error of our tree, within 2 s and 1 GiB.

`table.py` lists the targets, one for each parser, whose valid inputs lie in `corpus/`; `law.py` judges one input. Two
ways make inputs: `run.py` changes those of the corpus, by a seed (`python -m benchmarks.fuzz parsers`), and
`coverage.py` runs atheris, which keeps what reaches new code (`python -m benchmarks.fuzz parsers --coverage`,
`make fuzz`); `guided.py` is its process for one parser. Start with `table.py`.
"""
