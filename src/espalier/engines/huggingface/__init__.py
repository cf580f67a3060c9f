"""The transformers engine: any causal language model of Hugging Face, with our own KV cache that forks and truncates
single sequences. Start with `open.py` and `model.py`."""
