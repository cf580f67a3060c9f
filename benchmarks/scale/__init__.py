"""What our constraints cost inside the engines of others: `processor.py`."""
