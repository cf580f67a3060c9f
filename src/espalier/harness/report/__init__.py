"""A report as text for a terminal, as JUnit XML and as an HTML page. It judges nothing. Start with `terminal.py`."""
