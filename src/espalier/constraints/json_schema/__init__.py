"""The `json_schema` constraint: which backend compiles a schema, its matchers, arrays without repeats, and the
contract of what is enforced. The schema front end itself is the package `schema`. Start with `compile.py`.
"""
