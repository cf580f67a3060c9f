"""What a vLLM lists of the tokens of a reply, made into a trace: for the proxy in front of one. Start with
`request.py`, what a request is asked for; `reply.py` takes it out of the reply again, `server.py` learns what the lists
of a server mean, `record.py` makes the trace. It knows neither the proxy nor how a constraint is compiled.
"""
