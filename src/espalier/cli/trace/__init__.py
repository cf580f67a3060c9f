"""`espalier trace ...`: look at traces, rejection logs and replies of servers; merge, compare and replay them. Start
with `commands.py`.
"""
