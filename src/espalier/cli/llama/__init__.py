"""llama.cpp's command line: its flags as they are, on `espalier generate` and in a program like llama-completion.

`table.py` maps each flag to ours, and `reading.py` reads an argument list by it; start there. `generate.py` writes what
was read as flags of `espalier generate`, `completion.py` answers it as llama-completion does.
"""
