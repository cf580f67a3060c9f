"""The `json_schema` constraint: compiles a schema, its matchers, `uniqueItems`, and the contract of what is
enforced. Parsing and normalising schemas is done by the package `schema`. Start with `compile.py`.
"""
