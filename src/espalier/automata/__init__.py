"""Exact byte automata for the languages of constraints: building them, walking them against the token trie, the way
to the end of a text, and the reasons for a refusal. It knows no spec, no schema and no sampling. Start with
`languages/`.
"""
