"""The `json_schema` constraint: picks the backend for a schema, its matchers, `uniqueItems`, and the contract of what
is enforced. Parsing and normalising schemas is done by the package `schema`. Start with `compile.py`.
"""
