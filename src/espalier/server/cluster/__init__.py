"""The server and batch jobs on a Ray cluster: Ray Serve deploys the application of `apps.py`, Ray actors run items.

It knows no scheduler of its own: Ray places, restarts, routes and scales. What holds over replicas (traces, limits,
batches) is in the shared database. `plan.py` and `edge.py` import no Ray. Start reading at `application.py`.
"""
