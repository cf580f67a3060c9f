"""`espalier costs`: what constraints cost over time, from the sums that the store keeps with every trace.

`commands.py` has the commands, `lines.py` writes rows in 80 columns. It computes nothing. Start with `commands.py`.
"""
