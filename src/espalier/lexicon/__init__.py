"""Word lists as data: ranked lists on disk, the writing rules of each language, and building lists from wordfreq. It
knows no constraint. Start with `files.py`.
"""
