"""Automata about phrases in running text: texts without any of them (Aho-Corasick), text up to the first, and words
in a row. It knows no vocabulary and no constraint. Start with `occurrences.py`.
"""
