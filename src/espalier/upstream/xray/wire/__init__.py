"""What is added to a request so that its reply tells enough, and taken out of the reply before the client gets it.

Start with `request.py`; `reply.py` cuts by bytes, so that what is left is as the server wrote it.
"""
