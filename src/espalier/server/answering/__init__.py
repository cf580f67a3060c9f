"""From what is asked for to a reply: submitting, following the outputs, whole replies and chunks. Start with
`route.py`.
"""
