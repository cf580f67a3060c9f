"""The `wordlist` constraint: texts made of the words of a list. Its automaton, its judge and the out-of-vocabulary
report. The lists themselves are the package `lexicon`. Start with `spec.py`.
"""
