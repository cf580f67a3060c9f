"""What drafts learn within a process: how long forward passes take (`pass_costs.py`), what drafts have gained
(`worth.py`), and what followed under each constraint (`continuations.py`). Nothing here changes a token: it decides
only what is proposed, and how much of it. It knows no logits. Start with `kit.py`.
"""
