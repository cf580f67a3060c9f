"""Serves one engine to many callers, in threads and on event loops. It knows no HTTP. Start with `service.py`, which
runs the scheduler of `scheduling/` in a thread; `direct.py` serves engines that schedule for themselves."""
