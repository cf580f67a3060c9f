"""Request and reply bodies as types, one module for each dialect, and the OpenAPI document. They run nothing."""
