"""HTTP independent of any route: bodies read within limits, JSON replies, server-sent events, errors in OpenAI's shape.

It knows no field of any body.
"""
