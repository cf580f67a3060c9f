"""Pydantic types of request and reply bodies, one module per dialect, and the OpenAPI document. They run nothing."""
