"""The verbs of `agents/` over the Model Context Protocol: `espalier mcp`, on standard input and output or over HTTP. It
adds no verb, and runs generations as every route does: with the gate, limits, metrics and store of `process/`. Start
with `protocol.py` and `calls.py`."""
