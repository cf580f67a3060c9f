"""Traces from what others wrote: replies of OpenAI-compatible servers, llama.cpp's rejection logs, both merged, and
estimates where a log is missing. Start with `read.py`.
"""
