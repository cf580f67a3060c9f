"""The transformers engine: any causal language model of Hugging Face, with a KV cache of our own that forks and
truncates single sequences. Start with `engine.py`.
"""
