"""Serves one engine to many callers: continuous batching, prefix cache, fair queue, delivery to threads and event
loops. It knows no HTTP. Start with `service.py` and `scheduler.py`; `direct.py` serves engines that schedule for
themselves."""
