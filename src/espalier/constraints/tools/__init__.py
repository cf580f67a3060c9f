"""The `tool_calls` constraint: tool definitions as schemas, the grammar of calls in each wire format, free text
around them, and the verdict. Start with `spec.py`. Wire formats are data in `chat/wire/`.
"""
