"""Several machines that read one text together, as one: its states are tuples of the members' states, made when they
are met. It knows no kind of constraint, no EOS and no grammar. Start with `machine.py`.
"""
