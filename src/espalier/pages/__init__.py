"""The HTML templates, styles and scripts of the trace page, the page for two traces and the playground. No Python here:
`trace/page.py` builds the trace pages, `server/routes/web.py` serves the playground.
"""
