"""Traces from other programs' files: replies of OpenAI-compatible servers, llama.cpp's rejection logs, both merged, and
estimates without a log. Start with `read.py`."""
