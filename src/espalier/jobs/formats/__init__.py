"""Tables of prompts as inputs and outputs of a batch: JSON Lines, CSV and Parquet, and templates that make prompts.

It knows no database and no route. Start with `rows.py`.
"""
