"""Vocabularies: the bytes of every token, read from any tokenizer; packed token masks; the token trie. It knows no
grammar. Start with `vocab.py` and `mask.py`."""
