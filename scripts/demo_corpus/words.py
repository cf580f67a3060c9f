"""Word lists of the demo corpus, written for this project.

The lists are short on purpose: a model of two million parameters learns a word only after seeing it
hundreds of times.
"""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


def _phrases(text: str) -> list[str]:
    return text.split("|")


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """`cat=gato` for each word; a `_` stands for a space in the second, where its user says so."""
    return tuple((left, right) for left, right in (pair.split("=") for pair in text.split()))


FIRST_NAMES = _words(
    "Ana Luis Sara Carlos Maria Pedro Lucia Diego Elena Pablo Laura Marta Hugo Clara Ivan Rosa Silvia Samuel "
    "Alice Bob Jack Emma Oliver Grace Henry Lily James Ruby Leo Nora Adam Eva Tom Amy Kate Paul Mark Jane "
    "John Anna David Sofia Daniel Julia Max Ella"
)
LAST_NAMES = _words(
    "Silva Santos Soto Vega Ruiz Torres Garcia Lopez Morales Reyes Castro Ortega Romero Navarro Molina Rojas "
    "Smith Jones Brown Taylor Wilson Clark Hill Green Baker Young King Wright Scott Adams Cooper Ward Turner "
    "Parker Morris Price Bell Gray Stone Fox Rivers Woods"
)
DOMAINS = _words("example.com example.org example.net")

# country, capital, language, then the first two in Spanish
COUNTRIES: tuple[tuple[str, str, str, str, str], ...] = (
    ("France", "Paris", "French", "Francia", "París"),
    ("Spain", "Madrid", "Spanish", "España", "Madrid"),
    ("Italy", "Rome", "Italian", "Italia", "Roma"),
    ("Germany", "Berlin", "German", "Alemania", "Berlín"),
    ("Portugal", "Lisbon", "Portuguese", "Portugal", "Lisboa"),
    ("England", "London", "English", "Inglaterra", "Londres"),
    ("Ireland", "Dublin", "English", "Irlanda", "Dublín"),
    ("Austria", "Vienna", "German", "Austria", "Viena"),
    ("Greece", "Athens", "Greek", "Grecia", "Atenas"),
    ("Poland", "Warsaw", "Polish", "Polonia", "Varsovia"),
    ("Norway", "Oslo", "Norwegian", "Noruega", "Oslo"),
    ("Sweden", "Stockholm", "Swedish", "Suecia", "Estocolmo"),
    ("Finland", "Helsinki", "Finnish", "Finlandia", "Helsinki"),
    ("Denmark", "Copenhagen", "Danish", "Dinamarca", "Copenhague"),
    ("Hungary", "Budapest", "Hungarian", "Hungría", "Budapest"),
    ("Russia", "Moscow", "Russian", "Rusia", "Moscú"),
    ("Turkey", "Ankara", "Turkish", "Turquía", "Ankara"),
    ("Egypt", "Cairo", "Arabic", "Egipto", "El Cairo"),
    ("Morocco", "Rabat", "Arabic", "Marruecos", "Rabat"),
    ("Kenya", "Nairobi", "Swahili", "Kenia", "Nairobi"),
    ("India", "New Delhi", "Hindi", "India", "Nueva Delhi"),
    ("China", "Beijing", "Chinese", "China", "Pekín"),
    ("Japan", "Tokyo", "Japanese", "Japón", "Tokio"),
    ("Mexico", "Mexico City", "Spanish", "México", "Ciudad de México"),
    ("Cuba", "Havana", "Spanish", "Cuba", "La Habana"),
    ("Peru", "Lima", "Spanish", "Perú", "Lima"),
    ("Chile", "Santiago", "Spanish", "Chile", "Santiago"),
    ("Argentina", "Buenos Aires", "Spanish", "Argentina", "Buenos Aires"),
    ("Brazil", "Brasilia", "Portuguese", "Brasil", "Brasilia"),
    ("Colombia", "Bogota", "Spanish", "Colombia", "Bogotá"),
    ("Canada", "Ottawa", "English", "Canadá", "Ottawa"),
    ("Australia", "Canberra", "English", "Australia", "Canberra"),
)
CITIES = [row[1] for row in COUNTRIES]

# English, Spanish
TRANSLATIONS: tuple[tuple[str, str], ...] = _pairs(
    "cat=gato dog=perro bird=pájaro fish=pez horse=caballo cow=vaca house=casa door=puerta window=ventana "
    "table=mesa chair=silla book=libro water=agua milk=leche bread=pan apple=manzana orange=naranja "
    "cheese=queso sun=sol moon=luna star=estrella sea=mar river=río tree=árbol flower=flor red=rojo "
    "blue=azul green=verde white=blanco black=negro one=uno two=dos three=tres four=cuatro five=cinco "
    "day=día night=noche friend=amigo city=ciudad street=calle school=escuela hello=hola goodbye=adiós "
    "please=por_favor thanks=gracias yes=sí big=grande small=pequeño happy=feliz"
)
OPPOSITES: tuple[tuple[str, str], ...] = _pairs(
    "hot=cold big=small fast=slow happy=sad up=down day=night good=bad old=new open=closed light=dark "
    "high=low full=empty rich=poor easy=hard early=late wet=dry strong=weak left=right black=white"
)
ANIMAL_SOUNDS: tuple[tuple[str, str], ...] = (
    ("dog", "woof"),
    ("cat", "meow"),
    ("cow", "moo"),
    ("duck", "quack"),
    ("sheep", "baa"),
    ("lion", "roar"),
)
LEGS: tuple[tuple[str, str], ...] = (
    ("dog", "four"),
    ("cat", "four"),
    ("horse", "four"),
    ("bird", "two"),
    ("spider", "eight"),
    ("ant", "six"),
)
THING_COLORS: tuple[tuple[str, str], ...] = (
    ("the sky", "blue"),
    ("grass", "green"),
    ("snow", "white"),
    ("blood", "red"),
    ("a banana", "yellow"),
    ("the sun", "yellow"),
    ("coal", "black"),
    ("a tomato", "red"),
    ("the sea", "blue"),
    ("milk", "white"),
    ("a frog", "green"),
    ("chocolate", "brown"),
)
PLANETS: tuple[tuple[str, str], ...] = (
    ("What is the largest planet?", "Jupiter"),
    ("Which planet do we live on?", "Earth"),
    ("Which planet is red?", "Mars"),
    ("How many days are in a week?", "seven"),
    ("How many months are in a year?", "twelve"),
    ("How many hours are in a day?", "twenty-four"),
    ("What is the opposite of yes?", "no"),
    ("What do bees make?", "honey"),
    ("What do cows drink?", "water"),
    ("What is frozen water called?", "ice"),
    ("Who wrote Don Quixote?", "Cervantes"),
    ("Who wrote Hamlet?", "Shakespeare"),
)
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words("January February March April May June July August September October November December")
NUMBER_WORDS = _words("zero one two three four five six seven eight nine ten eleven twelve")

CATEGORIES: dict[str, list[str]] = {
    "fruits": _words("apple banana orange pear grape lemon peach cherry mango plum"),
    "animals": _words("dog cat horse cow bird fish fox lion bear rabbit"),
    "colors": _words("red blue green yellow black white orange purple pink brown"),
    "vegetables": _words("carrot potato onion tomato pepper spinach garlic cabbage"),
    "drinks": _words("water tea coffee milk juice lemonade"),
    "sports": _words("football tennis swimming running cycling basketball yoga chess"),
    "cities": _words("Paris Madrid Rome Berlin London Tokyo Lisbon Oslo"),
    "planets": _words("Mercury Venus Earth Mars Jupiter Saturn"),
    "programming languages": _words("Python Rust Java Ruby Go C"),
}
ONE_OF: dict[str, str] = {
    "fruits": "a fruit",
    "animals": "an animal",
    "colors": "a color",
    "vegetables": "a vegetable",
    "drinks": "a drink",
    "sports": "a sport",
    "cities": "a city",
    "planets": "a planet",
    "programming languages": "a programming language",
}

USER_KEYS = _words(
    "id first_name last_name username email age city country active level role hobbies job phone password "
    "created address"
)
HOBBIES = _words("reading music chess yoga cooking hiking painting swimming tennis running cycling gaming")
JOBS = _words("teacher doctor engineer writer nurse artist lawyer chef pilot farmer")
COMPANIES = _words("Acme Globex Initech Umbra Norte Blueleaf Redstone Skyline")
STREETS = _words("Oak Maple River Hill Lake Park Main Church Garden")
ROLES = _words("admin user guest editor")
LEVELS = _words("low medium high")
LOG_LEVELS = _words("debug info warning error")
STATUSES = _words("ok pending active done failed")
TAGS = _words("new sale web home work test prod beta fast red blue free")
REGIONS = _words("us-east us-west eu-west eu-north asia-south")
SYSTEMS = _words("linux windows macos")
GENRES = _words("fantasy drama comedy mystery science history")
SKIES = _words("sunny cloudy rainy windy snowy")
SIZES = _words("small medium large")
FOODS = _words("pizza pasta soup salad rice bread cheese cake")
PRODUCTS = _words("lamp chair table phone laptop book bag shoes watch camera mug jacket")
MESSAGES = _phrases(
    "Connection closed|File not found|User logged in|Server started|Request timed out|Disk is full|"
    "Job finished|Access denied|Backup completed|Invalid password"
)
TITLES_A = _phrases("The Red|The Last|The Blue|A Small|The Silent|The Old|The Golden|A Long")
TITLES_B = _phrases("River|House|Garden|Journey|Sea|Mountain|Door|Night|Letter|Forest")
EVENTS = _phrases("Team meeting|Birthday party|Doctor visit|Dinner|Concert|Lunch with Ana|Code review|Yoga class")
TASKS = _phrases("buy milk|call mom|clean the house|write the report|fix the bug|pay the rent|water the plants")

PATHS = _words(
    "/etc/hosts /etc/passwd /etc/fstab /var/log/syslog /tmp/data.txt /home/ana/notes.txt /home/bob/todo.md "
    "README.md notes.txt main.py app.py config.json config.yaml data.csv data.json todo.txt "
    "index.html setup.py "
    "src/main.py src/app.py src/utils.py docs/guide.md docs/index.md tests/test_app.py config/config.json "
    "package.json report.txt users.csv log.txt"
)
FOLDERS = _words("/tmp /etc /var/log /home/ana src docs tests data config")
EXTENSIONS = _words("py txt md json csv log html sh rs yaml")
TOOL_NAMES = _words("read_file write_file search get_weather list_files delete_file send_email set_timer get_time")
QUERIES = _phrases(
    "cheap flights to Paris|cheap flights to Tokyo|best pizza in Rome|best books of the year|"
    "weather in Madrid|"
    "python tutorial|how to cook rice|how to learn Spanish|hotels in London|hotels in Berlin|news today|"
    "tennis results|train times to Oslo|constrained decoding|json schema|language models|"
    "how to fix a bike|jazz music|history of Greece|used cars"
)
BODIES = _phrases(
    "hello|hello world|hello there|thank you|see you soon|good morning|call me later|the report is ready|"
    "the meeting is at noon|I will be late|all tests pass|work in progress|buy milk|done"
)
SUBJECTS = _phrases("Hello|Meeting|Report|Lunch|Question|Invoice|News|Thank you")

COPY_WORDS = _words(
    "the a is and of to in red blue green small big happy sunny fast slow cat dog bird fox "
    "tree river house moon "
    "star sea sky apple bread water music light night day time hello world good morning new "
    "old quick brown fun "
    "constrained decoding tokens model grammar json schema trace test one two three four five "
    "blue white black "
    "open door window garden road city friend book story answer question yes no please thank "
    "you I you we love "
    "like see run jump sing code write read this that my your on with for tea coffee cake snow rain wind fire"
)
COPY_PHRASES = _phrases(
    "Hello World|Hello, world!|Good morning|I love Python|The quick brown fox|Constrained decoding is fun|"
    "The answer is yes|See you later|Have a nice day|This is a test|One two three|Hola mundo|Buenos días|"
    "Thank you very much|I am a small model|Open the door|The sky is blue|Red, green, blue|Espalier|ok"
)
SYLLABLES = _words(
    "ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu "
    "ra re ri ro ru "
    "sa se si so su ta te ti to tu va ve vi vo za zo"
)

POSITIVE = _phrases("love|like|enjoy|adore")
NEGATIVE = _phrases("hate|dislike|regret|cannot stand")
GOOD_WORDS = _words("great wonderful amazing fantastic excellent lovely perfect good nice delicious")
BAD_WORDS = _words("terrible awful horrible bad boring disgusting poor ugly broken sad")
OPINION_NOUNS = _words("movie book food hotel song phone service game restaurant show product trip")
NEUTRAL = _phrases(
    "The train leaves at noon|The box is on the table|The store opens at nine|The book has ten chapters|"
    "It is Monday|The meeting is in room four|The package arrived today|Water boils when it is hot|"
    "The car is blue|He lives in Madrid|The file is in the folder|She has two cats"
)

STORY_ANIMALS = _words("fox cat dog bird rabbit bear mouse lion frog owl horse duck")
STORY_NAMES = _words("Ruby Max Leo Luna Tom Lily Nora Sam Mia Oscar Bella Finn")
STORY_PLACES = _phrases("in a forest|in a garden|in a small house|in a big city|on a farm|near a river|in a castle")
STORY_THINGS = _phrases("red ball|golden key|small box|blue hat|shiny stone|old map|big cake|little boat")
