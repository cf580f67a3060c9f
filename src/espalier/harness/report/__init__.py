"""A report as JUnit XML and as an HTML page. It judges nothing. Start with `page.py`."""
