"""llama.cpp's sampler chain over the probabilities that a server reports, drawn with the server's own random numbers.

Start with `chain.py`. `settings.py` reads the effective settings of a request, `numbers.py` makes the random numbers.

It is no mode of the step in `sampling/`, although the samplers have the same names, for four reasons:

- What goes in is not all logits. A server reports its most probable tokens; of the others only an upper bound is known,
  so that each sampler has to find out whether they matter (`UndecidedDraw`). The step has all logits.
- What comes out is not one token. The server's float32 sums are known to fewer digits than it has; where a sum is near
  an edge, each result is followed and later tokens decide (`SamplerReplay`). The step takes one token and says which.
- What is kept between samplers is an order. llama.cpp draws by walking its array as the last sampler left it: by id
  where none has sorted, else best first, else in typical_p's order. The step draws in order of id, whatever ran before.
- What is drawn takes other numbers: mt19937's, one for xtc only where two tokens are left, none for a mirostat that
  leaves one, and the first sum that is at least the target. The step takes the same count of Philox's at every token.

What is the same is shared: DRY's penalties and its breakers are those of `sampling/samplers/dry.py`.
"""
