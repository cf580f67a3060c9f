"""The flags that several commands share, and what their values become: constraints, models, sampling, decoding,
tools. A command takes them from here and never reads them itself.
"""
