"""Reads and checks the header of a GGUF file before llama.cpp opens the file. It loads no weights. Start with
`header.py`."""
