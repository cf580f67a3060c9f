"""What to capture of a run's hidden states (`options.py`), and the vectors while the run goes on (`tree.py`).

It knows no model and no strategy: an engine gives it vectors, and it is asked for those of a text. Start reading with
`tree.py`.
"""
