"""What our constraints cost inside the engines of others: `processor.py`. What Ray Serve costs: `ray.py`. Queues at
many replicas, simulated: `queueing.py`."""
