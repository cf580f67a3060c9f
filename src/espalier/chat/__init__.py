"""Messages, tools and the turns of a conversation, on the way into a prompt and out of a model's text. It knows no
engine and no constraint. Start with `messages.py` and `tools.py`.
"""
