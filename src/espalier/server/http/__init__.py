"""HTTP without our routes: reading bodies within limits, JSON on the wire, server-sent events, errors in OpenAI's
shape.
"""
