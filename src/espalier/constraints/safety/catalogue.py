"""The categories, presets and patterns that ship with Espalier, as data. It does not know how they are matched.

A pattern is three regular expressions in the dialect of `grammar/regex/parse.py`: the context before it, the pattern
itself, and the context after it. None has look-around. Patterns that ignore case are written in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CATEGORIES: Mapping[str, str] = {
    "profanity": "vulgar language",
    "violence": "violent language",
    "pii": "numbers that name a person or an account",
    "code_injection": "shell and query injection",
    "credentials": "keys, tokens and passwords with a value",
    "hate": "hateful language",
    "sexual": "sexual language",
    "self_harm": "language of self-harm",
    "dangerous": "instructions for weapons and drugs, commands that destroy data",
}

PRESETS: Mapping[str, tuple[str, ...]] = {
    "minimal": ("code_injection",),
    "standard": ("code_injection", "credentials"),
    "strict": ("code_injection", "credentials", "pii", "violence", "dangerous"),
    "maximum": tuple(CATEGORIES),
    "code_safety": ("code_injection",),
}

PRESET_TEXTS: Mapping[str, tuple[str, ...]] = {"code_safety": ("rm -rf", "sudo", "; rm", "| rm")}
"""Texts that a preset also forbids, anywhere: those of PedroCLI's test case `code_safety`, as they stand there."""

NEEDS_LIST = ("profanity", "violence", "hate", "sexual", "self_harm")
"""Categories without built-in patterns: nothing is caught unless the user gives a list."""

START = r"(?:^|[^\w-])"
"""At the start of a word, not after a hyphen."""
COMMAND = r"(?:^|[^\w.-])"
"""At the start of a command name, also as the last part of a path."""
LINE = r"(?:^|[\n;&|(`{])[ \t]*(?:[$#>%][ \t]+)?"
"""At the start of a command: on a new line, perhaps after a shell prompt, or after a command separator."""
END = r"(?:[^\w-]|\Z)"
_RM = r"[ \t]+(?:-[dirv]+|--(?:verbose|no-preserve-root|preserve-root|one-file-system|interactive|dir))"
_CHMOD = r"[ \t]+(?:-[rvcf]+|--(?:recursive|verbose|changes|silent|quiet))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One built-in pattern. itself, before, after: see above. about: what it catches, for people. is_folded: case and
    width are ignored. is_option: off unless it is included by name. detector: `regex`, or `card` for `cards.py`."""

    name: str
    category: str
    itself: str
    about: str
    before: str = START
    after: str = ""
    is_folded: bool = True
    is_option: bool = False
    detector: str = "regex"

    @property
    def full_name(self) -> str:
        return f"{self.category}/{self.name}"


def _shell(name: str, itself: str, about: str, *, before: str = COMMAND, after: str = "") -> Pattern:
    return Pattern(name=name, category="code_injection", itself=itself, about=about, before=before, after=after)


def _key(name: str, itself: str, about: str) -> Pattern:
    return Pattern(
        name=name, category="credentials", itself=itself, about=about, before=r"(?:^|[^\w-])", is_folded=False
    )


_AS_ROOT = (
    r"(?:apt|apt-get|bash|cat|chmod|chown|cp|crontab|dd|dnf|docker|kill|make|mkfs|mount|mv|nano|npm|pacman|pip|python"
    r"|reboot|rm|service|sh|shutdown|su|systemctl|tee|useradd|usermod|vi|vim|visudo|yum)"
)
_FETCH = r"(?:curl|wget|nc|ncat|bash|sh|sudo|rm|eval|base64|whoami|id)"
_SECRET = (
    r"(?:password|passwd|passphrase|secret|secret[_-]?key|api[_-]?key|access[_-]?key(?:[_-]id)?|access[_-]?token"
    r"|auth[_-]?token|private[_-]?key|client[_-]?secret)"
)
_THINGS = (
    r"(?:(?:pipe|nail|dirty|car|fertilizer|petrol)[ -])?(?:bomb|explosive|detonator|landmine|molotov cocktail|grenade"
    r"|nerve agent|nerve gas|sarin|mustard gas|ricin|anthrax|bioweapon|chemical weapon|silencer)"
)
_DRUGS = r"(?:methamphetamine|meth|crack cocaine|heroin|fentanyl|mdma|lsd)"
_MAKE = r"(?:make|making|build|building|create|creating|construct|assemble|prepare|synthesi[sz]e|cook|cooking|produce)"

PATTERNS: tuple[Pattern, ...] = (
    _shell(
        "rm_recursive_force",
        rf"rm(?:{_RM})*[ \t]+(?:-[div]*(?:r[dirv]*f|f[dfiv]*r)"
        rf"|(?:-[div]*r[dirv]*|--recursive)(?:{_RM})*[ \t]+(?:-[dirv]*f|--force)"
        rf"|(?:-[div]*f[dfiv]*|--force)(?:{_RM})*[ \t]+(?:-[dfiv]*r|--recursive))",
        "rm -rf, -fr, -r -f, --recursive --force",
    ),
    _shell(
        "rm_flags_last",
        # Digits and other characters in the name would add half as many states: keys and numbers may start there.
        r"rm[ \t]+[a-z_./~*]+[ \t]+-[div]*(?:r[dirv]*f|f[dfiv]*r)",
        "rm x -rf, of one name in letters and _ . / ~ *",
    ),
    _shell(
        "chained_rm",
        r"rm[ \t]+[-/~*$]",
        "rm with an option or a path right after ; | or &&",
        before=r"(?:[;|]|&&)[ \t]*",
    ),
    _shell(
        "sudo",
        r"sudo[ \t]+(?:-[a-z]|[./~$])",
        "sudo and an option or a path where a command begins",
        before=LINE,
    ),
    _shell(
        "sudo_command",
        rf"sudo[ \t]+{_AS_ROOT}",
        "sudo and one of 35 commands where a command begins",
        before=LINE,
        after=END,
    ),
    _shell(
        "pipe_to_shell",
        r"\|[ \t]*(?:sudo[ \t]+)?(?:/(?:usr/)?bin/)?(?:env[ \t]+)?(?:ba|z|k|da)?sh",
        "| sh, | bash, | sudo bash at the end of a command",
        before="",
        after=r"(?:[ \t]+-|[ \t]*(?:[\n;&\"'`<)]|\Z))",
    ),
    _shell(
        "command_substitution",
        rf"\$\([ \t]*{_FETCH}",
        "$( with a command that fetches, decodes, deletes or runs",
        before="",
        after=END,
    ),
    _shell(
        "backtick_substitution",
        rf"`[ \t]*{_FETCH}(?:[ \t]|`)",
        "a backtick right after = or a quote, with such a command",
        before=r"[=\"']",
    ),
    _shell("process_substitution", r"(?:ba|z|k|da)?sh[ \t]+<\([ \t]*(?:curl|wget)", "bash <(curl"),
    _shell(
        "chmod_777",
        rf"chmod(?:{_CHMOD})*[ \t]+(?:[0-7]?777|(?:a|ugo)?[+=]rwx)",
        "chmod 777, a+rwx",
    ),
    _shell(
        "fork_bomb",
        r":[ \t]*\([ \t]*\)[ \t]*\{[ \t\n]*:[ \t]*\|[ \t]*:",
        ":(){ :|:& };:",
        before="",
    ),
    _shell("reverse_shell", r"(?:/dev/(?:tcp|udp)/[a-z0-9]|n(?:c|cat)[ \t]+-[a-z]*e[ \t])", "/dev/tcp/, nc -e"),
    _shell(
        "eval_of_input",
        r"(?:eval|exec)[ \t]*\([ \t]*(?:input[ \t]*\(|request[.\[]|req\.|sys\.argv|atob[ \t]*\(|base64"
        r"|\$_(?:get|post|request|cookie))",
        "eval( or exec( of what a user sent",
        before=r"(?:^|[^\w.])",
    ),
    _shell(
        "sql_injection",
        r"['\"][ \t]*(?:;[ \t]*drop[ \t]+(?:table|database)[ \t]|or[ \t]+(?:'1'[ \t]*=[ \t]*'1|1[ \t]*=[ \t]*1)"
        r"|union[ \t]+(?:all[ \t]+)?select[ \t])",
        "a quote, then ; DROP TABLE, OR 1=1 or UNION SELECT",
        before="",
    ),
    Pattern(
        name="assignment",
        category="credentials",
        itself=rf"{_SECRET}(?:=[\"']?|[ \t]*=[ \t]*[\"'])[^\s\"'<>$%*{{}}()\[\],;&]",
        about="password=, api_key= and the like with a value, spaces around = if it is quoted",
        before=r"(?:^|[^a-z0-9-]|(?:^|[^a-z0-9-])-{1,2})",
    ),
    Pattern(
        name="quoted_assignment",
        category="credentials",
        itself=rf"{_SECRET}[\"'][ \t]*(?::|=>)[ \t]*[\"'][^\s\"'<>$%*{{}}()\[\],;&]",
        about='"password": "x" and the like, as in JSON and Python',
        before=r"[^a-z0-9-]",
    ),
    Pattern(
        name="private_key",
        category="credentials",
        itself=r"-----begin (?:(?:rsa|dsa|ec|openssh|encrypted|pgp) )?private key",
        about="the first line of a PEM or PGP private key",
        before="",
    ),
    _key("aws_key_id", r"(?:AKIA|ASIA|AGPA|AROA|AIDA)[0-9A-Z]{16}", "an AWS access key id"),
    _key("github_token", r"(?:gh[pousr]_[A-Za-z0-9]{20}|github_pat_[A-Za-z0-9]{16})", "a GitHub token"),
    _key("gitlab_token", r"glpat-[A-Za-z0-9]{6}", "a GitLab token"),
    _key(
        "sk_key",
        r"sk-(?:[A-Za-z0-9]{20}|(?:proj|svcacct|admin|ant|or|lf)-[A-Za-z0-9]{6})",
        "an sk- key, as of OpenAI and Anthropic",
    ),
    _key("slack_token", r"xox[abeprs]-[0-9A-Za-z-]{6}", "a Slack token"),
    _key("google_key", r"AIzaSy[0-9A-Za-z]{6}", "a Google API key"),
    _key("stripe_key", r"(?:sk|rk|pk)_(?:live|test)_[0-9A-Za-z]{16}", "a Stripe key"),
    _key("npm_token", r"npm_[A-Za-z0-9]{20}", "an npm token"),
    _key("huggingface_token", r"hf_[A-Za-z0-9]{20}", "a Hugging Face token"),
    _key("sendgrid_key", r"SG\.[A-Za-z0-9]{8}", "a SendGrid key"),
    _key(
        "jwt",
        r"eyJ(?:hbGciOi|0eXAiOi|raWQiOi|lbmMiOi|jdHkiOi|6aXAiOi)[A-Za-z0-9]{4}",
        "a JSON Web Token, by its header",
    ),
    Pattern(
        name="ssn",
        category="pii",
        itself=r"(?:00[1-9]|0[1-9][0-9]|[1-57-8][0-9][0-9]|6(?:[0-57-9][0-9]|6[0-57-9]))"
        r"(?:-(?:0[1-9]|[1-9][0-9])-|[ ](?:0[1-9]|[1-9][0-9])[ ])"
        r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9][0-9]|[1-9][0-9][0-9][0-9])",
        about="a US Social Security number with hyphens or spaces, of an area and group that can be",
        before=r"(?:^|[^\w.@ -]|(?:^|[^0-9])[ ])",
        is_folded=False,
    ),
    Pattern(
        name="card",
        category="pii",
        itself="",
        about="a payment card: 13 to 19 digits, single spaces or hyphens between them, with a valid Luhn sum",
        detector="card",
    ),
    Pattern(
        name="card_code",
        category="pii",
        itself=r"(?:cvv2?|cvc2?|card security code)[ \t]*(?:[:=]|is)?[ \t]*[0-9]{3}",
        about="CVV or CVC and three digits",
    ),
    Pattern(
        name="iban",
        category="pii",
        itself=r"(?:(?:AT|BE|BG|CY|CZ|DE|DK|EE|ES|FI|FR|GR|HR|HU|IS|LT|NO|PL|PT|SE|SI|SK)[0-9]{2}[ ]?[0-9]{4}[ ]?"
        r"[0-9]{4}[ ]?[0-9]{3}"
        r"|(?:GB|IE|NL|LV|RO|BH|QA|PK)[0-9]{2}[ ]?[A-Z]{4}[ ]?[0-9]{4}[ ]?[0-9]{4}"
        r"|(?:CH|LI|LU|IT|SM|MT|AE|SA|TR)[0-9]{2}[ ]?[A-Z0-9][0-9]{3}[ ]?[0-9]{4}[ ]?[0-9]{3})",
        about="an IBAN of 39 countries by its shape: the country, two digits and the first part of the account; its "
        "check digits are not looked at",
        is_folded=False,
    ),
    Pattern(
        name="email",
        category="pii",
        itself=r"[a-z0-9_%+-]@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2}",
        about="an e-mail address",
        before="",
        is_option=True,
    ),
    Pattern(
        name="phone",
        category="pii",
        itself=r"(?:\+[1-9][0-9]{0,2}[ .-]?(?:\([0-9]{1,4}\)[ ]?)?[0-9](?:[ .-]?[0-9]){6}"
        r"|(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[.-])[2-9][0-9]{2}[ .-][0-9]{4})",
        about="a telephone number: +, the country and seven digits, or three, three and four of North America",
        before=r"(?:^|[^\w.@+-])",
        is_option=True,
        is_folded=False,
    ),
    Pattern(
        name="weapon_instructions",
        category="dangerous",
        itself=rf"(?:how to|how do (?:i|you)|steps to|guide to|instructions (?:for|to)|ways? to|recipe for) "
        rf"(?:{_MAKE} )?(?:a |an |your own |some |homemade )*{_THINGS}",
        about="how to make a bomb, a nerve agent and the like",
    ),
    Pattern(
        name="drug_instructions",
        category="dangerous",
        itself=rf"(?:how to|how do (?:i|you)|steps to|guide to|instructions (?:for|to)|recipe for) (?:{_MAKE} )?"
        rf"(?:your own |some |crystal )*{_DRUGS}",
        after=END,
        about="how to make methamphetamine, fentanyl and the like",
    ),
    Pattern(
        name="disk_wipe",
        category="dangerous",
        itself=r"(?:mkfs(?:\.[a-z0-9]+)?[ \t]+(?:-[a-z][ \t]+)?/dev/[a-z]|of=/dev/(?:sd|hd|vd|nvme|disk|mmcblk)"
        r"|format[ \t]+c:|vssadmin[ \t]+delete[ \t]+shadows|del[ \t]+/[fsq][ \t]+/[fsq])",
        about="mkfs and dd onto a device, format c:, deleting shadow copies",
        before=COMMAND,
    ),
)
"""If several match at once, the first in this order is named."""

BY_NAME: Mapping[str, Pattern] = {pattern.name: pattern for pattern in PATTERNS}
