"""What agents can call, as one table of verbs: `table.py` for the MCP server (`server/mcp/`) and for `LogitTool`, which
needs neither MCP nor HTTP. A verb reads its arguments and says what to generate, or answers at once; it knows no
transport and runs no model. Start with `verb.py` and `table.py`."""
