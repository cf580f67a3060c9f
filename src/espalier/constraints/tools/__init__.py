"""The `tool_calls` constraint: reads tool definitions, builds the grammar of calls in a wire format and the free text
around it, and judges finished texts. Wire formats are data in `chat/wire/`. Start with `spec.py`.
"""
