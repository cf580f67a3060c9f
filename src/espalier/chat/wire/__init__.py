"""Wire formats of tool calls: one `WireFormat` value per format, its detection from a chat template, and rendering of
calls. Parsers are in `reading/`, constraints in `constraints/tools/`."""
