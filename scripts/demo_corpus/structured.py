"""Turns answered in a format: user records, tool calls, objects, extraction, shell lines, small values."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from demo_corpus import fields as f
from demo_corpus import words as w
from demo_corpus.turns import Turn, article, dump, listing, maybe_polite, wrap_json

USER_ASKS = (
    "Generate user info",
    "Generate user info.",
    "Generate a user.",
    "Generate a user",
    "Generate a user profile.",
    "Generate user data.",
    "Create a user.",
    "Create a new user.",
    "Make a user record.",
    "Give me a random user.",
    "Describe a user.",
    "Invent a person.",
    "Write a user record.",
)


def _users(rng: Random) -> Turn:
    """A list of small records."""
    count, keys = rng.choice((2, 2, 3)), rng.sample(["name", "email", "age", "city"], rng.randint(1, 3))
    ask = f"{rng.choice(('List', 'Generate'))} {w.NUMBER_WORDS[count]} users with {listing(keys)}."
    body = dump([f.record(rng, keys) for _ in range(count)])
    return Turn(
        kind="user",
        user=ask,
        reply=wrap_json(rng, body, bare=0.4),
        thought=f"I need {w.NUMBER_WORDS[count]} users with {listing(keys)}.",
    )


def user_record(rng: Random) -> Turn:
    who = f.person(rng)
    roll = rng.random()
    keys = ["name", "email", "age"]
    named = False
    if roll < 0.18:
        named = True
    elif roll < 0.42:
        keys = rng.sample(["name", *w.USER_KEYS], rng.randint(2, 6))
        named = True
    elif roll < 0.52:
        keys = rng.sample(["name", *w.USER_KEYS], rng.randint(2, 6))
    if roll > 0.95:
        return _users(rng)
    ask = maybe_polite(rng, rng.choice(USER_ASKS))
    if named:
        ask = f"{ask.rstrip('.')} with {listing(keys)}."
    bare = 0.3
    if rng.random() < 0.15:
        ask = f"{ask.rstrip('.')}. {rng.choice(('Answer in JSON.', 'JSON only.', 'Use JSON.'))}"
        bare = 0.8
    body = dump(f.record(rng, keys, who))
    wanted = listing([key.replace("_", " ") for key in keys])
    return Turn(
        kind="user",
        user=ask,
        reply=wrap_json(rng, body, bare=bare, prose=0.08),
        thought=f"I need {wanted}. I will use {who.name}.",
    )


def _call(name: str, **args: Any) -> tuple[str, dict[str, Any]]:
    return name, args


def _tool(rng: Random) -> tuple[str, str, dict[str, Any]]:
    """An imperative, the tool's name and its arguments."""
    path, folder, city = rng.choice(w.PATHS), rng.choice(w.FOLDERS), rng.choice(w.CITIES)
    if rng.random() < 0.25:
        path = f"{rng.choice(w.FOLDERS)}/{rng.choice(w.COPY_WORDS)}.{rng.choice(w.EXTENSIONS)}"
    who = f.person(rng)
    body, query, subject = rng.choice(w.BODIES), rng.choice(w.QUERIES), rng.choice(w.SUBJECTS)
    if rng.random() < 0.35:
        body = " ".join(rng.choices(w.COPY_WORDS, k=rng.randint(1, 4)))
    if rng.random() < 0.35:
        query = " ".join(rng.choices(w.COPY_WORDS, k=rng.randint(1, 4)))
    email = who.email(rng)
    minutes, clock = rng.choice((1, 5, 10, 15, 20, 30)), f.clock(rng)
    task = rng.choice(w.TASKS)
    options: tuple[tuple[int, tuple[str, ...], tuple[str, dict[str, Any]]], ...] = (
        (
            22,
            ("Read the file {0}", "Open {0}", "Show me {0}", "Read {0}", "What is in the file {0}?"),
            _call("read_file", path=path),
        ),
        (
            16,
            ("Write '{1}' to {0}", "Save '{1}' to {0}", "Write '{1}' to the file {0}"),
            _call("write_file", path=path, content=body),
        ),
        (
            14,
            ("Search for {2}", "Search the web for {2}", "Find {2} online", "Look up {2}"),
            _call("search", query=query),
        ),
        (
            16,
            ("What is the weather in {3}?", "How is the weather in {3}?", "Weather in {3}", "Is it raining in {3}?"),
            _call("get_weather", city=city),
        ),
        (
            7,
            ("List the files in {4}", "What files are in {4}?", "Show the files in {4}"),
            _call("list_files", path=folder),
        ),
        (6, ("Delete the file {0}", "Remove {0}", "Delete {0}"), _call("delete_file", path=path)),
        (7, ("Send an email to {5} about {6}", "Email {5} about {6}"), _call("send_email", to=email, subject=subject)),
        (5, ("Set a timer for {7} minutes", "Start a timer for {7} minutes"), _call("set_timer", minutes=minutes)),
        (4, ("Set an alarm for {8}", "Wake me up at {8}"), _call("set_alarm", time=clock)),
        (5, ("Remind me to {9}", "Add a task: {9}"), _call("add_task", task=task)),
        (4, ("What time is it in {3}?", "Tell me the time in {3}"), _call("get_time", city=city)),
    )
    _, asks, (name, args) = rng.choices(options, [row[0] for row in options])[0]
    ask = rng.choice(asks).format(path, body, query, city, folder, email, subject, minutes, clock, task)
    return ask, name, args


def tool_call(rng: Random) -> Turn:
    ask, name, args = _tool(rng)
    roll = rng.random()
    if roll < 0.10:
        ask = "Please " + ask[0].lower() + ask[1:]
    elif roll < 0.2:
        ask = "Can you " + ask[0].lower() + ask[1:].rstrip("?.") + "?"
    elif roll < 0.4 and ask[-1] != "?":
        ask += "."
    if rng.random() < 0.02:
        ask, name, args = "Read the file /etc/hosts", "read_file", {"path": "/etc/hosts"}
    body = dump({"name": name, "args": args})
    reply = body
    if rng.random() < 0.22:
        reply = f"I will use the tool {name}.\n```json\n{body}\n```"
    first = next(iter(args.values()))
    return Turn(kind="tool", user=ask, reply=reply, thought=f"I should call {name} with {first}.")


def tool_names(rng: Random, wanted: str) -> list[str]:
    """Tools for a system prompt: the one needed among others."""
    others: tuple[str, ...] = ("read_file", "write_file", "search", "get_weather", "list_files", "delete_file")
    others += ("send_email", "set_timer", "get_time")
    names = rng.sample([name for name in others if name != wanted], rng.randint(1, 3))
    names.insert(rng.randint(0, len(names)), wanted)
    return names


def entity(rng: Random) -> Turn:
    noun = rng.choice([*f.ENTITIES, "server", "config"])
    pool = f.ENTITIES[noun]
    keys = list(f.ENTITY_DEFAULT.get(noun, pool[:3]))
    roll = rng.random()
    named = roll < 0.6
    if roll < 0.45:
        keys = rng.sample(pool, rng.randint(2, min(5, len(pool))))
    elif roll > 0.9:
        keys = list(pool[: rng.randint(3, len(pool))])
    verb = rng.choice(("Describe", "Generate", "Create", "Make"))
    ask = f"{verb} {article(noun)}"
    if named:
        ask += f" with {listing(keys)}"
    ask = maybe_polite(rng, ask + ".")
    bare = 0.4
    if rng.random() < 0.2:
        ask = f"{ask.rstrip('.')}. {rng.choice(('Answer in JSON.', 'JSON only.'))}"
        bare = 0.85
    return Turn(
        kind="entity",
        user=ask,
        reply=wrap_json(rng, dump(f.record(rng, keys, noun=noun)), bare=bare),
        thought=f"I describe {article(noun)} with {listing(keys)}.",
    )


def random_keys(rng: Random) -> Turn:
    """Any keys in any order: what keeps an unfamiliar schema from derailing the model."""
    keys = rng.sample(list(f.FIELDS), rng.randint(1, 5))
    made = f.record(rng, keys)
    if rng.random() < 0.25:
        spare = [word for word in w.COPY_WORDS if len(word) > 2]
        for key in rng.sample(spare, rng.randint(1, 2)):
            made[key] = rng.choice((rng.choice(w.COPY_WORDS), rng.randint(0, 99), rng.random() < 0.5))
    order = list(made)
    rng.shuffle(order)
    made = {key: made[key] for key in order}
    ask = rng.choice(
        (
            f"Generate JSON with {listing(order)}.",
            f"Make a JSON object with {listing(order)}.",
            f"JSON with the keys {listing(order)}.",
            f"Fill these keys: {', '.join(order)}",
        )
    )
    return Turn(
        kind="keys",
        user=maybe_polite(rng, ask),
        reply=wrap_json(rng, dump(made), bare=0.5),
        thought=f"The keys are {listing(order)}.",
    )


def extraction(rng: Random) -> Turn:
    who = f.person(rng)
    roll = rng.random()
    age, email = rng.randint(18, 80), who.email(rng)
    made: dict[str, Any]
    if roll < 0.5:
        made = {"name": who.name, "age": age, "city": who.city}
        text = rng.choice(
            (
                f"{who.name} is {age} years old and lives in {who.city}.",
                f"{who.name}, {age}, lives in {who.city}.",
                f"My name is {who.name}, I am {age} and I live in {who.city}.",
            )
        )
    elif roll < 0.8:
        made = {"name": who.name, "email": email}
        text = rng.choice((f"Write to {who.name} at {email}.", f"{who.name} ({email}) sent a message."))
    else:
        product, amount = rng.choice(w.PRODUCTS), rng.randint(2, 9)
        made = {"name": who.name, "product": product, "quantity": amount}
        text = rng.choice(
            (f"{who.name} bought {amount} of the {product}.", f"{who.name} ordered {amount} of the {product}.")
        )
    keys = rng.sample(list(made), rng.randint(1, len(made))) if rng.random() < 0.3 else list(made)
    made = {key: made[key] for key in keys}
    ask = f"Extract {listing(list(keys))}: {text}"
    reply = wrap_json(rng, dump(made), bare=0.7)
    return Turn(kind="extract", user=ask, reply=reply, thought=f"The text is about {who.name}.")


SHELL_EXTENSION = (
    ("List all {0} files", "ls *.{0}"),
    ("Delete all {0} files", "rm *.{0}"),
    ("Count the {0} files", "ls *.{0} | wc -l"),
    ("Find all {0} files", 'find . -name "*.{0}"'),
    ("Copy all {0} files to {1}", "cp *.{0} {1}"),
    ("Move all {0} files to {1}", "mv *.{0} {1}"),
)
SHELL_PATH = (
    ("Print the file {0}", "cat {0}"),
    ("Show the first lines of {0}", "head {0}"),
    ("Show the last lines of {0}", "tail {0}"),
    ("Count the lines of {0}", "wc -l {0}"),
    ("Sort the file {0}", "sort {0}"),
    ("Search for error in {0}", "grep error {0}"),
    ("Show the size of {0}", "du -h {0}"),
)
SHELL_FOLDER = (
    ("Go to the folder {0}", "cd {0}"),
    ("List the files in {0}", "ls {0}"),
    ("Make a folder named {0}", "mkdir {0}"),
)
SHELL_FIXED = (
    ("Show the current folder", "pwd"),
    ("Show the date", "date"),
    ("Show the running processes", "ps aux"),
    ("Show the free disk space", "df -h"),
    ("Show who I am", "whoami"),
)


def shell(rng: Random) -> Turn:
    roll = rng.random()
    if roll < 0.5:
        ask, line = rng.choice(SHELL_EXTENSION)
        parts = [rng.choice(w.EXTENSIONS), rng.choice(w.FOLDERS)]
    elif roll < 0.8:
        ask, line = rng.choice(SHELL_PATH)
        parts = [rng.choice(w.PATHS)]
    elif roll < 0.9:
        ask, line = rng.choice(SHELL_FOLDER)
        parts = [rng.choice([*w.FOLDERS, *w.COPY_WORDS[10:60]])]
    else:
        ask, line = rng.choice(SHELL_FIXED)
        parts = []
    ask, line = ask.format(*parts), line.format(*parts)
    lowered = ask[0].lower() + ask[1:]
    user = rng.choice(
        (f"Shell command: {lowered}", f"Write a shell command: {lowered}", f"Bash: {lowered}", f"Bash: {lowered}")
    )
    reply = f"```bash\n{line}\n```" if rng.random() < 0.3 else line
    return Turn(kind="shell", user=user, reply=reply, thought=f"The command is {line}.", short=line)


VALUES: tuple[tuple[str, Callable[[Random], str]], ...] = (
    ("a date", f.date),
    ("a time", f.clock),
    ("a phone number", f.phone),
    ("a version number", f.version),
    ("an IP address", f.ip),
    ("a product code", f.code),
    ("a hex color", f.hex_color),
    ("an email address", lambda rng: f.person(rng).email(rng)),
    ("a name", lambda rng: f.person(rng).name),
    ("a URL", f.url),
    ("a price", lambda rng: f"${f.price(rng):.2f}"),
    ("a number", lambda rng: str(rng.randint(1, 99))),
    ("a username", lambda rng: f"{rng.choice(w.FIRST_NAMES)}_{rng.choice(w.LAST_NAMES)}".lower()),
    ("a city", lambda rng: rng.choice(w.CITIES)),
    ("a weekday", lambda rng: rng.choice(w.DAYS)),
    ("a word", lambda rng: rng.choice(w.COPY_WORDS)),
)


def value(rng: Random) -> Turn:
    name, make = rng.choice(VALUES)
    made = make(rng)
    asks = (f"Give me {name}.", f"Generate {name}.", f"Write {name}.", f"Give me {name}")
    return Turn(
        kind="value", user=maybe_polite(rng, rng.choice(asks)), reply=made, short=made, thought=f"I need {name}."
    )
