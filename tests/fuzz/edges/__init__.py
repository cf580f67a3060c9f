"""One random request through every edge, judged a second time by plain numpy code. Start with `run.py`.

`draw.py` draws requests, `ask.py` asks them through Python, HTTP and the command line, `chain.py` and `steps.py` work
out each step again from the model's logits, `verdicts.py` judges texts without the matcher, `same.py` compares.
"""
