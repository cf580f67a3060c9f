"""What one server process holds (engine, scheduler, gate, meter, store, threads): opened, closed, and given to routes.

It knows no route and no body. Start with `state.py`.
"""
