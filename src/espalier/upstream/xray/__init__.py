"""Works out, from what a stock llama-server reports, which tokens its sampler drew first and its grammar refused.

It makes no requests. Start with `replay.py`, which goes through one reply; `grammar/` follows llama.cpp's own rules of
what a grammar allows, `sampler/` draws what its samplers drew.
"""
