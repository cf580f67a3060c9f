"""The grid of JSON Schema: every pair and triple of keywords of one type, in every place of a schema.

    keywords.py    the keywords of each type, with values at their bounds
    places.py      where a schema can stand: plain, under `not`, in a branch, behind `$ref`, in `unevaluatedItems`, ...
    cells.py       (keywords, place, draft) for each number, in an order that a seed shuffles
    values.py      small JSON values over the names and values of a schema
    oracles.py     two validators, and what the standard says where they differ
    reasons.py     which refusals of valid documents a note of the contract announces
    surfaces.py    whether Python, `espalier check` and HTTP state one contract
    run.py         one cell tried: `python -m benchmarks.fuzz grid`

Start with `run.py`. The package shares no code with what lowers or matches schemas.
"""
