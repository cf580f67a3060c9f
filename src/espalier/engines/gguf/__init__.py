"""The header of a GGUF file, read and checked before llama.cpp opens the file. It loads no weights."""
