"""llama.cpp's sampler chain over the probabilities that a server reports, drawn with the server's own random numbers.

Start with `chain.py`. `settings.py` reads the effective settings of a request, `numbers.py` makes the random numbers.
"""
