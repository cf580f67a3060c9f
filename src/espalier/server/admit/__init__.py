"""API keys, rate limits and concurrency limits. It knows no route. Start with `gate.py`."""
