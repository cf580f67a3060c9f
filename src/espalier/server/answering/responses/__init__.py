"""Builds replies of `/v1/responses`: the items of the output, whole responses, the events of a stream.

It waits for nothing and runs nothing. Start with `output.py`.
"""
