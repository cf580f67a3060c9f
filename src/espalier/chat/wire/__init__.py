"""How models write tool calls: one `WireFormat` value for each format, its detection from a chat template, and calls
written in it. Parsers are in `reading/`, constraints in `constraints/tools/`.
"""
