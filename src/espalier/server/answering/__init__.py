"""Runs engine requests and writes the reply: submit, follow the outputs, build whole replies or stream chunks.

It reads no body. Start with `route.py`.
"""
