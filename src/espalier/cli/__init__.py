"""The command `espalier`: one module for each sub-command, its flags in `flags/`. Data goes to stdout, everything
else to stderr. It knows no engine's insides. Start with `main.py`.
"""
