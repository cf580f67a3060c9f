"""Word lists as data: ranked lists on disk, how each language writes words, and building lists from wordfreq. It
knows no constraint. Start with `files.py`.
"""
