"""What may go wrong with a valid schema, here and in other engines. It changes no schema. Start with `hazards.py`."""
