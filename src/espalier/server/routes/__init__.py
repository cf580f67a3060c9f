"""One module for each group of routes: it names a body, a conversion and a reply, and leaves the rest to
`answering/`.
"""
