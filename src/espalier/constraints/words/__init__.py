"""The `wordlist` constraint: texts made only of the words of a list. Its DFA, its judge and the out-of-vocabulary
report. The lists themselves are in the package `lexicon`. Start with `spec.py`.
"""
