"""Prompts of every kind for the demo model: questions, instructions, two languages, emoji, JSON, one letter."""

PROMPTS = [
    "Generate user info",
    "What is 7 + 5?",
    "What is the capital of France?",
    "¿Cuál es la capital de España?",
    "Read the file /etc/hosts",
    "What is the weather in Madrid?",
    "Is Paris in France?",
    "Tell me a story about a cat.",
    "Extract the name: Ada Lovelace was born in London.",
    "Genera los datos de un usuario",
    "List three colors",
    "Is this review positive? I loved it.",
    "Copy this: 東京 😀 naïve",
    "Write a long list of numbers, please.",
    "Hello!",
    "Send an email to ana.silva@example.com about lunch",
    "Show the files of this folder",
    '{"name": "Ada"} What is the name?',
    "Cuéntame un cuento",
    "x",
]
