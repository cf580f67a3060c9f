"""Templates and word lists from which the demo model's training text is drawn."""

from demo_corpus.assemble import Sample, corpus

__all__ = ["Sample", "corpus"]
