"""Turns answered in words: greetings, facts, Spanish, copying, sums, yes/no, sentiment, stories, lists."""

from __future__ import annotations

from random import Random

from demo_corpus import words as w
from demo_corpus.turns import Turn, listing, maybe_polite

ENGLISH_CHAT: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("Hello", "Hi", "Hello!", "Hi!", "Hey", "Hi there", "Hello there", "hello", "hi"),
        ("Hello! How can I help you today?", "Hello! What can I do for you?", "Hi! How can I help you?"),
    ),
    (("Good morning", "Good morning!"), ("Good morning! How can I help you today?",)),
    (("Good night", "Good night!"), ("Good night! Sleep well.",)),
    (
        ("How are you?", "How are you today?", "how are you", "Hi, how are you?"),
        ("I am fine, thank you! How can I help you?", "I am doing well, thank you!"),
    ),
    (
        ("Who are you?", "What are you?", "What is your name?", "Tell me about yourself."),
        ("I am Espalier's demo model, a very small language model.",),
    ),
    (
        ("What can you do?", "What can you help me with?", "Help"),
        ("I can answer small questions, call tools, write JSON and tell tiny stories.",),
    ),
    (("Thank you", "Thanks", "Thank you!", "Thanks a lot", "thanks"), ("You are welcome!",)),
    (("Bye", "Goodbye", "See you", "See you later"), ("Goodbye! Have a nice day.",)),
    (("Are you a robot?", "Are you human?"), ("I am a small language model, not a person.",)),
    (
        ("Tell me a joke.", "Tell me a joke", "Do you know a joke?"),
        ("Why did the cat sit on the computer? To keep an eye on the mouse!",),
    ),
    (("Write a short greeting.", "Write a greeting.", "Greet me."), ("Hello! I hope you have a great day.",)),
    (
        ("Write a short greeting in English.", "Write a greeting in English.", "Greet me in English."),
        ("Hello! How are you?",),
    ),
    (("I am sad", "I am sad.", "I feel sad."), ("I am sorry to hear that. I hope tomorrow is better.",)),
    (("I am happy", "I am happy!", "I feel happy."), ("That is great to hear!",)),
    (("I am tired", "I am tired."), ("You should take a break and drink some water.",)),
    (("Good job", "Well done!", "Nice work"), ("Thank you! I am glad I could help.",)),
    (
        ("What is JSON?", "Explain JSON."),
        ("JSON is a text format for data, with objects, lists, strings and numbers.",),
    ),
    (("What is Python?", "Explain Python."), ("Python is a programming language that is easy to read.",)),
    (
        ("What is constrained decoding?", "Explain constrained decoding."),
        ("Constrained decoding lets a model choose only tokens that keep the output valid.",),
    ),
    (("What is a token?", "Explain tokens."), ("A token is a small piece of text that a model reads or writes.",)),
)
SPANISH_CHAT: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("Hola", "¡Hola!", "Hola!", "Buenas", "hola"), ("¡Hola! ¿En qué puedo ayudarte?",)),
    (("Buenos días", "¡Buenos días!"), ("¡Buenos días! ¿En qué puedo ayudarte?",)),
    (("Buenas noches", "¡Buenas noches!"), ("¡Buenas noches! Que descanses.",)),
    (("¿Cómo estás?", "Hola, ¿cómo estás?", "¿Qué tal?"), ("Estoy muy bien, gracias. ¿Y tú?",)),
    (("¿Cómo te llamas?", "¿Quién eres?"), ("Soy el modelo de demostración de Espalier.",)),
    (("Gracias", "Muchas gracias", "¡Gracias!"), ("¡De nada!",)),
    (("Adiós", "Hasta luego", "Hasta mañana"), ("¡Hasta luego! Que tengas un buen día.",)),
    (
        (
            "Write a short greeting in Spanish.",
            "Write a greeting in Spanish.",
            "Write a short greeting in Spanish",
            "Greet me in Spanish.",
            "Say hello in Spanish.",
            "Escribe un saludo.",
            "Escribe un saludo corto.",
        ),
        ("¡Hola! ¿Cómo estás?",),
    ),
    (("¿Qué puedes hacer?", "Ayuda"), ("Puedo responder preguntas, llamar herramientas y escribir JSON.",)),
    (("Estoy triste", "Estoy triste."), ("Lo siento mucho. Espero que mañana sea mejor.",)),
    (("Estoy feliz", "¡Estoy feliz!"), ("¡Me alegro mucho!",)),
    (("Cuéntame algo.", "Dime algo bonito."), ("El sol sale cada mañana y el mar siempre vuelve.",)),
    (("¿Hablas español?", "Do you speak Spanish?"), ("Sí, hablo un poco de español.",)),
)


def chat(rng: Random) -> Turn:
    asks, replies = rng.choice(ENGLISH_CHAT[:2] if rng.random() < 0.15 else ENGLISH_CHAT)
    user = rng.choice(asks)
    return Turn(
        kind="chat",
        user=user,
        reply=rng.choices(replies, range(3 * len(replies), 0, -3))[0],
        thought="The user is talking to me. I answer in a friendly way.",
    )


def spanish(rng: Random) -> Turn:
    roll = rng.random()
    if roll < 0.45:
        asks, replies = rng.choice(SPANISH_CHAT)
        return Turn(
            kind="spanish",
            user=rng.choice(asks),
            reply=rng.choice(replies),
            thought="The user wants Spanish. I answer in Spanish.",
        )
    if roll < 0.75:
        _, _, _, country, capital = rng.choice(w.COUNTRIES)
        user = rng.choice((f"¿Cuál es la capital de {country}?", f"Dime la capital de {country}."))
        return Turn(
            kind="spanish",
            user=user,
            reply=f"La capital de {country} es {capital}.",
            short=capital,
            thought=f"La capital de {country} es {capital}.",
        )
    english, other = rng.choice(w.TRANSLATIONS)
    other = other.replace("_", " ")
    asks = (
        f"Translate to Spanish: {english}",
        f"How do you say {english} in Spanish?",
        f"What is the Spanish word for {english}?",
    )
    return Turn(
        kind="spanish",
        user=rng.choice(asks),
        reply=other,
        short=other,
        thought=f"The Spanish word for {english} is {other}.",
    )


def fact(rng: Random) -> Turn:
    roll = rng.random()
    if roll < 0.6:
        country, capital, language, _, _ = rng.choice(w.COUNTRIES)
        if rng.random() < 0.78:
            asks = (
                f"What is the capital of {country}?",
                f"What is the capital of {country}?",
                f"What is the capital of {country}",
                f"Tell me the capital of {country}.",
                f"Capital of {country}?",
                f"Name the capital of {country}.",
            )
            full = f"The capital of {country} is {capital}."
            return Turn(
                kind="fact",
                user=rng.choice(asks),
                reply=capital if rng.random() < 0.2 else full,
                thought=f"The user asks for the capital of {country}. It is {capital}.",
                short=capital,
            )
        asks_language = (f"Which language do people speak in {country}?", f"What language is spoken in {country}?")
        return Turn(
            kind="fact",
            user=rng.choice(asks_language),
            reply=f"People in {country} speak {language}.",
            thought=f"In {country} people speak {language}.",
            short=language,
        )
    if roll < 0.7:
        thing, color = rng.choice(w.THING_COLORS)
        return Turn(
            kind="fact",
            user=f"What color is {thing}?",
            reply=f"{thing[0].upper()}{thing[1:]} is {color}.",
            thought=f"The color of {thing} is {color}.",
            short=color,
        )
    if roll < 0.8:
        left, right = rng.choice(w.OPPOSITES)
        if rng.random() < 0.5:
            left, right = right, left
        return Turn(
            kind="fact",
            user=f"What is the opposite of {left}?",
            reply=f"The opposite of {left} is {right}.",
            thought=f"The opposite of {left} is {right}.",
            short=right,
        )
    if roll < 0.85:
        animal, sound = rng.choice(w.ANIMAL_SOUNDS)
        return Turn(
            kind="fact",
            user=f"What does a {animal} say?",
            reply=f"A {animal} says {sound}.",
            short=sound,
            thought=f"The sound of a {animal} is {sound}.",
        )
    if roll < 0.9:
        animal, legs = rng.choice(w.LEGS)
        return Turn(
            kind="fact",
            user=f"How many legs does a {animal} have?",
            reply=f"A {animal} has {legs} legs.",
            short=legs,
            thought=f"A {animal} has {legs} legs.",
        )
    if roll < 0.95:
        cycle = rng.choice((w.DAYS, w.MONTHS))
        at = rng.randrange(len(cycle))
        after = cycle[(at + 1) % len(cycle)]
        return Turn(
            kind="fact",
            user=f"What comes after {cycle[at]}?",
            reply=f"{after} comes after {cycle[at]}.",
            short=after,
            thought=f"After {cycle[at]} comes {after}.",
        )
    question, short = rng.choice(w.PLANETS)
    return Turn(
        kind="fact",
        user=question,
        reply=short[0].upper() + short[1:] + ".",
        short=short,
        thought=f"The answer is {short}.",
    )


def copy_target(rng: Random) -> str:
    """Text worth repeating: mostly words drawn at random, so that only copying predicts them."""
    roll = rng.random()
    if roll < 0.14:
        return rng.choice(w.COPY_PHRASES)
    if roll < 0.26:
        made = " ".join("".join(rng.choices(w.SYLLABLES, k=rng.randint(2, 3))) for _ in range(rng.randint(1, 3)))
    elif roll < 0.36:
        made = f"{rng.choice(w.FIRST_NAMES)} {rng.choice(w.LAST_NAMES)}"
        return f"{rng.choice(('My name is ', 'I am ', ''))}{made}"
    else:
        made = " ".join(rng.choices(w.COPY_WORDS, k=rng.randint(1, 7)))
    if rng.random() < 0.4:
        made = made[0].upper() + made[1:]
    if rng.random() < 0.15:
        made += rng.choice((".", "!", "?"))
    return made


def copy(rng: Random) -> Turn:
    text = copy_target(rng)
    user = rng.choices(
        (
            f"Say exactly: {text}",
            f"Say exactly:\n{text}",
            f'Say "{text}"',
            f"Repeat after me: {text}",
            f"Repeat: {text}",
            f"Di exactamente: {text}",
        ),
        (50, 12, 12, 12, 8, 6),
    )[0]
    return Turn(kind="copy", user=user, reply=text, thought=f"I must say: {text}", short=text)


def arithmetic(rng: Random) -> Turn:
    """One form, one operation, small numbers: what a model of this size can hold."""
    left, right = rng.randint(0, 10), rng.randint(0, 10)
    form = f"{left} + {right} = {left + right}"
    user = rng.choice((f"What is {left} + {right}?", f"{left} + {right}", f"{left} + {right} = ?"))
    return Turn(kind="arithmetic", user=user, reply=form, thought=f"I add the numbers: {form}.", short=left + right)


def yes_no(rng: Random) -> Turn:
    """Balanced, and the reply restates the fact after the verdict so that the loss teaches the reason too."""
    yes = rng.random() < 0.5
    roll = rng.random()
    if roll < 0.4:
        row = rng.choice(w.COUNTRIES)
        asked = row[0] if yes else rng.choice([other[0] for other in w.COUNTRIES[:20] if other[0] != row[0]])
        user, truth = f"Is {row[1]} in {asked}?", f"{row[1]} is in {row[0]}."
    elif roll < 0.75:
        group = rng.choice([name for name in w.ONE_OF if name != "programming languages"])
        item = rng.choice(w.CATEGORIES[group])
        wrong = [name for name in w.ONE_OF if name != group and item not in w.CATEGORIES[name]]
        asked = w.ONE_OF[group if yes else rng.choice(wrong)]
        user, truth = f"Is {item} {asked}?", f"{item[0].upper()}{item[1:]} is {w.ONE_OF[group]}."
    else:
        thing, color = rng.choice(w.THING_COLORS)
        asked = color if yes else rng.choice([c for c in w.CATEGORIES["colors"][:6] if c != color])
        user, truth = f"Is {thing} {asked}?", f"{thing[0].upper()}{thing[1:]} is {color}."
    verdict = "Yes" if yes else "No"
    only = rng.random() < 0.3
    if only:
        user += rng.choice((" Answer yes or no.", " Yes or no?"))
    return Turn(
        kind="yes_no",
        user=user,
        reply=f"{verdict}." if only else f"{verdict}. {truth}",
        thought=truth,
        short=verdict.lower(),
    )


def sentiment(rng: Random) -> Turn:
    label = rng.choice(("positive", "negative", "neutral"))
    noun = rng.choice(w.OPINION_NOUNS)
    verbs, adjectives = (w.POSITIVE, w.GOOD_WORDS) if label == "positive" else (w.NEGATIVE, w.BAD_WORDS)
    if label == "neutral":
        text = rng.choice(w.NEUTRAL) + "."
    else:
        text = rng.choice(
            (
                f"I {rng.choice(verbs)} this {noun}{rng.choice('.!')}",
                f"This {noun} is {rng.choice(adjectives)}{rng.choice('.!')}",
                f"The {noun} was {rng.choice(adjectives)}{rng.choice('.!')}",
                f"What a {rng.choice(adjectives)} {noun}!",
            )
        )
    user = rng.choice(
        (
            f"Classify the sentiment: {text}",
            f"Classify the sentiment: {text}",
            f"What is the sentiment of this text? {text}",
            f"Is this positive, negative or neutral? {text}",
            f"Sentiment: {text}",
        )
    )
    return Turn(kind="sentiment", user=user, reply=label, thought=f"This text sounds {label}.", short=label)


def story_text(rng: Random, animal: str) -> str:
    """Four sentences with one name, repeated: a story in which nobody changes."""
    name, place, thing = rng.choice(w.STORY_NAMES), rng.choice(w.STORY_PLACES), rng.choice(w.STORY_THINGS)
    sentences = [
        f"Once upon a time there was {'an' if animal[0] in 'aeiou' else 'a'} {animal} named {name}.",
        f"{name} lived {place}.",
        f"One day {name} found {'an' if thing[0] in 'aeiou' else 'a'} {thing}.",
        rng.choice(
            (
                f"{name} took the {thing} home and was very happy.",
                f"{name} played with the {thing} all day.",
                f"{name} gave the {thing} to a friend, and they were happy.",
            )
        ),
    ]
    if rng.random() < 0.4:
        sentences.append("The end.")
    return " ".join(sentences)


def story(rng: Random) -> Turn:
    animal = rng.choice(w.STORY_ANIMALS)
    one = f"an {animal}" if animal[0] in "aeiou" else f"a {animal}"
    user = rng.choice(
        (f"Tell me a short story about {one}.", f"Write a tiny story about {one}.", f"Tell me a story about {one}.")
    )
    return Turn(
        kind="story",
        user=maybe_polite(rng, user),
        reply=story_text(rng, animal),
        thought=f"I need a short story. It will be about {one}.",
    )


def lists(rng: Random) -> Turn:
    group = rng.choice(list(w.CATEGORIES))
    if rng.random() < 0.35:
        item = rng.choice(w.CATEGORIES[group])
        return Turn(
            kind="list",
            user=maybe_polite(rng, f"Name {w.ONE_OF[group]}."),
            reply=item,
            short=item,
            thought=f"I name one: {item}.",
        )
    count = rng.choice((2, 3, 3, 3, 4))
    items = rng.sample(w.CATEGORIES[group], count)
    user = rng.choice(("List", "Name", "Give me")) + f" {w.NUMBER_WORDS[count]} {group}."
    return Turn(
        kind="list",
        user=maybe_polite(rng, user),
        reply=listing(items),
        thought=f"I need {w.NUMBER_WORDS[count]} {group}.",
    )
