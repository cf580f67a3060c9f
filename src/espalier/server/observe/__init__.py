"""Logs, Prometheus metrics and OpenTelemetry spans. Prompts and answers appear only with LOG_CONTENT=true."""
