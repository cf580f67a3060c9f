"""Logs, metrics and traces of the server's own work. No prompt and no answer is written down here."""
