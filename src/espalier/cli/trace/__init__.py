"""`espalier trace ...`: show traces, rejection logs and server replies; merge, compare and replay them. Start
with `commands.py`.
"""
