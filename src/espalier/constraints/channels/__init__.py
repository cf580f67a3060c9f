"""The constraint on a turn in channels, as gpt-oss writes it: messages of reasoning, then an answer that is valid under
another constraint, or calls of tools. It knows no inner constraint's workings. Start with `spec.py`.
"""
