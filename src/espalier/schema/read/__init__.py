"""Schema documents: parsing, drafts, references, and JSON values as JSON Schema compares them. It expands nothing."""
