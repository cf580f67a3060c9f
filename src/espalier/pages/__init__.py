"""The HTML templates, styles and scripts of the pages: a trace, two traces, a batch, test cases, the API and the
playground. `parts.py` reads them; the packages that know what stands on a page build it.
"""
