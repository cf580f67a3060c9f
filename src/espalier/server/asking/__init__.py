"""From a request body to what it asks for: constraint, sampling, decoding, prompts. It runs nothing and writes no
reply. Start with `openai.py`.
"""
