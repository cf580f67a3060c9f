"""Many callers on one model: a scheduler that batches forward passes, kept prefixes, fair turns, and delivery to
threads and event loops. It knows no HTTP. Start with `service.py` and `scheduler.py`.
"""
