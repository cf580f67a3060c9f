"""Parse streamed text into a turn: reasoning, content and tool calls, as deltas while text arrives. It knows no engine.
Start with `turn_parser.py`; each shape of call has its own parser."""
