"""Word lists of the demo corpus, written for this project.

The lists are short on purpose: a model of two million parameters learns a word only if it sees it hundreds of times.
"""

from __future__ import annotations

FIRST_NAMES = (
    "Ana Luis Sara Carlos Maria Pedro Lucia Diego Elena Pablo Laura Marta Hugo Clara Ivan Rosa Silvia Samuel "
    "Alice Bob Jack Emma Oliver Grace Henry Lily James Ruby Leo Nora Adam Eva Tom Amy Kate Paul Mark Jane "
    "John Anna David Sofia Daniel Julia Max Ella"
).split()
LAST_NAMES = (
    "Silva Santos Soto Vega Ruiz Torres Garcia Lopez Morales Reyes Castro Ortega Romero Navarro Molina Rojas "
    "Smith Jones Brown Taylor Wilson Clark Hill Green Baker Young King Wright Scott Adams Cooper Ward Turner "
    "Parker Morris Price Bell Gray Stone Fox Rivers Woods"
).split()
DOMAINS = "example.com example.org example.net".split()

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
TRANSLATIONS: tuple[tuple[str, str], ...] = tuple(
    (pair.split("=")[0], pair.split("=")[1])
    for pair in (
        "cat=gato dog=perro bird=pájaro fish=pez horse=caballo cow=vaca house=casa door=puerta window=ventana "
        "table=mesa chair=silla book=libro water=agua milk=leche bread=pan apple=manzana orange=naranja "
        "cheese=queso sun=sol moon=luna star=estrella sea=mar river=río tree=árbol flower=flor red=rojo "
        "blue=azul green=verde white=blanco black=negro one=uno two=dos three=tres four=cuatro five=cinco "
        "day=día night=noche friend=amigo city=ciudad street=calle school=escuela hello=hola goodbye=adiós "
        "please=por_favor thanks=gracias yes=sí big=grande small=pequeño happy=feliz"
    ).split()
)
OPPOSITES: tuple[tuple[str, str], ...] = tuple(
    (pair.split("=")[0], pair.split("=")[1])
    for pair in (
        "hot=cold big=small fast=slow happy=sad up=down day=night good=bad old=new open=closed light=dark "
        "high=low full=empty rich=poor easy=hard early=late wet=dry strong=weak left=right black=white"
    ).split()
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
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()

CATEGORIES: dict[str, list[str]] = {
    "fruits": "apple banana orange pear grape lemon peach cherry mango plum".split(),
    "animals": "dog cat horse cow bird fish fox lion bear rabbit".split(),
    "colors": "red blue green yellow black white orange purple pink brown".split(),
    "vegetables": "carrot potato onion tomato pepper spinach garlic cabbage".split(),
    "drinks": "water tea coffee milk juice lemonade".split(),
    "sports": "football tennis swimming running cycling basketball yoga chess".split(),
    "cities": "Paris Madrid Rome Berlin London Tokyo Lisbon Oslo".split(),
    "planets": "Mercury Venus Earth Mars Jupiter Saturn".split(),
    "programming languages": "Python Rust Java Ruby Go C".split(),
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

HOBBIES = "reading music chess yoga cooking hiking painting swimming tennis running cycling gaming".split()
JOBS = "teacher doctor engineer writer nurse artist lawyer chef pilot farmer".split()
COMPANIES = "Acme Globex Initech Umbra Norte Blueleaf Redstone Skyline".split()
STREETS = "Oak Maple River Hill Lake Park Main Church Garden".split()
ROLES = "admin user guest editor".split()
LEVELS = "low medium high".split()
LOG_LEVELS = "debug info warning error".split()
STATUSES = "ok pending active done failed".split()
TAGS = "new sale web home work test prod beta fast red blue free".split()
REGIONS = "us-east us-west eu-west eu-north asia-south".split()
SYSTEMS = "linux windows macos".split()
GENRES = "fantasy drama comedy mystery science history".split()
SKIES = "sunny cloudy rainy windy snowy".split()
SIZES = "small medium large".split()
FOODS = "pizza pasta soup salad rice bread cheese cake".split()
PRODUCTS = "lamp chair table phone laptop book bag shoes watch camera mug jacket".split()
MESSAGES = (
    "Connection closed|File not found|User logged in|Server started|Request timed out|Disk is full|"
    "Job finished|Access denied|Backup completed|Invalid password"
).split("|")
TITLES_A = "The Red|The Last|The Blue|A Small|The Silent|The Old|The Golden|A Long".split("|")
TITLES_B = "River|House|Garden|Journey|Sea|Mountain|Door|Night|Letter|Forest".split("|")
EVENTS = "Team meeting|Birthday party|Doctor visit|Dinner|Concert|Lunch with Ana|Code review|Yoga class".split("|")
TASKS = "buy milk|call mom|clean the house|write the report|fix the bug|pay the rent|water the plants".split("|")

PATHS = (
    "/etc/hosts /etc/passwd /etc/fstab /var/log/syslog /tmp/data.txt /home/ana/notes.txt /home/bob/todo.md "
    "README.md notes.txt main.py app.py config.json config.yaml data.csv data.json todo.txt index.html setup.py "
    "src/main.py src/app.py src/utils.py docs/guide.md docs/index.md tests/test_app.py config/config.json "
    "package.json report.txt users.csv log.txt"
).split()
FOLDERS = "/tmp /etc /var/log /home/ana src docs tests data config".split()
EXTENSIONS = "py txt md json csv log html sh rs yaml".split()
QUERIES = (
    "cheap flights to Paris|cheap flights to Tokyo|best pizza in Rome|best books of the year|weather in Madrid|"
    "python tutorial|how to cook rice|how to learn Spanish|hotels in London|hotels in Berlin|news today|"
    "tennis results|train times to Oslo|constrained decoding|json schema|language models|"
    "how to fix a bike|jazz music|history of Greece|used cars"
).split("|")
BODIES = (
    "hello|hello world|hello there|thank you|see you soon|good morning|call me later|the report is ready|"
    "the meeting is at noon|I will be late|all tests pass|work in progress|buy milk|done"
).split("|")
SUBJECTS = "Hello|Meeting|Report|Lunch|Question|Invoice|News|Thank you".split("|")

COPY_WORDS = (
    "the a is and of to in red blue green small big happy sunny fast slow cat dog bird fox tree river house moon "
    "star sea sky apple bread water music light night day time hello world good morning new old quick brown fun "
    "constrained decoding tokens model grammar json schema trace test one two three four five blue white black "
    "open door window garden road city friend book story answer question yes no please thank you I you we love "
    "like see run jump sing code write read this that my your on with for tea coffee cake snow rain wind fire"
).split()
COPY_PHRASES = (
    "Hello World|Hello, world!|Good morning|I love Python|The quick brown fox|Constrained decoding is fun|"
    "The answer is yes|See you later|Have a nice day|This is a test|One two three|Hola mundo|Buenos días|"
    "Thank you very much|I am a small model|Open the door|The sky is blue|Red, green, blue|Espalier|ok"
).split("|")
SYLLABLES = (
    "ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu ra re ri ro ru "
    "sa se si so su ta te ti to tu va ve vi vo za zo"
).split()

POSITIVE = "love|like|enjoy|adore".split("|")
NEGATIVE = "hate|dislike|regret|cannot stand".split("|")
GOOD_WORDS = "great wonderful amazing fantastic excellent lovely perfect good nice delicious".split()
BAD_WORDS = "terrible awful horrible bad boring disgusting poor ugly broken sad".split()
OPINION_NOUNS = "movie book food hotel song phone service game restaurant show product trip".split()
NEUTRAL = (
    "The train leaves at noon|The box is on the table|The store opens at nine|The book has ten chapters|"
    "It is Monday|The meeting is in room four|The package arrived today|Water boils when it is hot|"
    "The car is blue|He lives in Madrid|The file is in the folder|She has two cats"
).split("|")

STORY_ANIMALS = "fox cat dog bird rabbit bear mouse lion frog owl horse duck".split()
STORY_NAMES = "Ruby Max Leo Luna Tom Lily Nora Sam Mia Oscar Bella Finn".split()
STORY_PLACES = "forest|garden|small house|big city|village|farm|mountain|river|castle".split("|")
STORY_THINGS = "red ball|golden key|small box|blue hat|shiny stone|old map|big cake|little boat".split("|")
