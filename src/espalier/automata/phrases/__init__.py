"""Automata that search running text: text without given phrases (Aho-Corasick), text up to the first of them, and
texts made of the words of a list. It knows no vocabulary and no constraint. Start with `occurrences.py`.
"""
