"""The llama.cpp engine: GGUF files in this process, through llama-cpp-python's C bindings. `open.py` joins the parts,
`model.py` maps tokens to logits, `library.py` opens and checks the library."""
