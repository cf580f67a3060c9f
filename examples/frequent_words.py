"""Text for learners: only the 3,000 most frequent words of a language."""

import espalier

words = espalier.Wordlist(lang="es", top=3000)
with espalier.load("models/demo") as engine:
    result = engine.generate("Write a short greeting in Spanish.", constraint=words, seed=1, max_tokens=30)
    print(result.text)
    print(result.verdict)
