"""The HTML templates, styles and scripts of the trace page, the page for two traces, the page of test cases and the
playground. No Python here: `trace/page.py` and `harness/report/page.py` build pages, `server/routes/web.py` serves the
playground.
"""
