"""Opens, closes and gives to routes what a process holds: engine, scheduler, gate, meter, store, worker threads.

It knows no route and no body. Start with `state.py`.
"""
