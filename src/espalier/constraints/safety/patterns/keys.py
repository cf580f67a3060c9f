"""The patterns of `credentials`: assignments with a literal value, and keys in the shapes that their vendors publish.
It knows only what a pattern is.

An assignment is judged by its value: a secret holds a digit among its first characters, which names, types,
placeholders and variables seldom do. The bodies of keys begin with other characters than `xxx` and `...`, which stand
for a key."""

from __future__ import annotations

from espalier.constraints.safety.patterns.pattern import START, SafetyPattern


def _key(name: str, itself: str, about: str, source: str, *, before: str = START, part: str = "keys") -> SafetyPattern:
    return SafetyPattern(
        name=name, category="credentials", itself=itself, about=about, before=before, source=source, part=part
    )


def _assignment(name: str, itself: str, about: str, *, before: str) -> SafetyPattern:
    # A part for each: what one of them waits for goes on to the end of a line or word, beside all that the others do.
    return SafetyPattern(name=name, category="credentials", itself=itself, about=about, before=before, part=name)


_C = r"[^\s\"'<>$%*{}()\[\],;.`\\|&]"
"""A character of a value."""
_V = r"[^\s\"'<>$%*{}()\[\],;.`\\|&/:#@?=0-9]"
"""The first character of a value, if it is no digit."""


def _with_digit(least: int) -> str:
    """A value of at least so many characters, with a digit and another character; complete as soon as that is sure."""
    options = [rf"[0-9]+[a-z]{_C}{{{least - 2}}}"]
    options += [rf"{_V}{_C}{{{at - 1}}}[0-9]{_C}{{{least - 1 - at}}}" for at in range(1, least - 1)]
    return rf"(?:{'|'.join([*options, rf'{_V}{_C}{{{least - 2}}}{_C}*[0-9]'])})"


def _other_than(word: str, characters: str) -> str:
    """Three or more characters that do not begin with a word. characters: a class, without its brackets."""
    options = [rf"{word[:at]}[^{word[at]}{characters}][^{characters}]{{{max(0, 2 - at)},}}" for at in range(len(word))]
    return (
        rf"(?:{'|'.join(options)}|{word[:3]}{''.join(f'(?:{letter}' for letter in word[3:-1])}{')?' * (len(word) - 4)})"
    )


_PASS = r"(?:pg)?(?:password|passwd|passphrase|pass_phrase|pwd|pw|community)"
_SECRET = (
    r"(?:secret|secret[_-]?key(?:[_-]?base)?|(?:secret[_-]?)?access[_-]?key(?:[_-]?id)?|(?:x-)?api[_-]?key|account[_-]?key"
    r"|[a-z]*[_-]?token|private[_-]?key|client[_-]?secret|aws[_-]?secret[_-]?key)"
)
_IS = r"[ \t]*(?::=|=>|=|:)[ \t]*"
_NAME = r"(?:^|[^a-z0-9-]|(?:^|[^a-z0-9-])-{1,2})"
"""Before a name: `db_password` and `--password` count, `x-password` does not."""
_X = r"(?:[a-wyz0-9_-]|x[a-wyz0-9_-])"
"""The beginning of a key that is not `xx...`."""

ASSIGNMENTS: tuple[SafetyPattern, ...] = (
    _assignment(
        "assignment",
        rf"(?:{_PASS}(?:[\"']?{_IS}[\"']?|[\"'][ \t]*,[ \t]*[\"']|>){_with_digit(4)}"
        rf"|{_SECRET}(?:[\"']?{_IS}[\"']?|[\"'][ \t]*,[ \t]*[\"']|>){_with_digit(6)}"
        rf"|(?:postgres|mysql|mysql_root|mariadb|mariadb_root|redis|rabbitmq_default|mongo_initdb_root)_pass(?:word)?={_V}{_C}{{5}})",
        "password, token, api_key and the like with =, : or => and a literal value with a digit in it",
        before=_NAME,
    ),
    _assignment(
        "named_password",
        rf"(?:--password[ \t]+{_with_digit(4)}|login[ \t]+[^\s\"']+[ \t]+password[ \t]+{_with_digit(4)}"
        rf"|password[ \t]+(?:is|was)[ \t]*:?[ \t]*{_with_digit(5)}|sshpass[ \t]+-p[ \t]*[a-z0-9]"
        rf"|net[ \t]+user[ \t]+[^\s/\"']+[ \t]+{_with_digit(4)}"
        rf"|mysql[^\n|;]*[ \t]-p[a-z0-9]{{3}}|curl[ \t]+(?:[^\n|;]*[ \t])?(?:-u|--user)[ \t]+[a-z0-9._-]+:[a-z0-9])",
        "--password x1, login a password x1, curl -u a:x, mysql -px, sshpass -p x",
        before=r"(?:^|[^\w])",
    ),
    _assignment(
        "authorization",
        r"authorization[\"']?[ \t]*[:=][ \t]*[\"']?(?:bearer|basic|token)[ \t]+[a-z0-9._~+/-]+[0-9][a-z0-9._~+/=-]{4}",
        "an Authorization header with a token (RFC 6750, RFC 7617)",
        before=START,
    ),
    _assignment(
        "url_password",
        r"[a-z][a-z0-9+.-]*://[a-z0-9._%+-]*:" + _other_than("password", r"\s/:@\"'<>{}$*\[\]") + r"@[a-z0-9]",
        "a URL with a password (RFC 3986, userinfo)",
        before="",
    ),
    _assignment(
        "password_hash",
        r"(?:\$[56]\$(?:rounds=[0-9]+\$)?[./a-z0-9]{1,16}\$[./a-z0-9]{20}|\$2[abxy]\$[0-9]{2}\$[./a-z0-9]{22})",
        "a password's hash as in /etc/shadow (crypt(5))",
        before="",
    ),
)
KEYS: tuple[SafetyPattern, ...] = (
    _key(
        "private_key",
        r"(?:-----begin (?:(?:rsa|dsa|ec|openssh|encrypted|pgp) )?private key|putty-user-key-file-[0-9]"
        r"|age-secret-key-1[a-z0-9]{20})",
        "the first line of a private key",
        "RFC 7468, RFC 4880, OpenSSH PROTOCOL.key, PuTTY, age",
        before="",
        part="private keys",
    ),
    _key(
        "aws_key_id", r"(?:akia|asia|agpa|aroa|aida)[0-9a-z]{16}", "an AWS access key id", "AWS IAM, Unique identifiers"
    ),
    _key(
        "github_token",
        rf"(?:gh[pousr]_{_X}[a-z0-9]{{30}}|github_pat_{_X}[a-z0-9]{{16}})",
        "a GitHub token, classic or fine-grained",
        "GitHub docs, About authentication to GitHub",
    ),
    _key(
        "gitlab_token",
        rf"(?:gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-|gr1348941){_X}[a-z0-9_-]{{14}}",
        "a GitLab token",
        "GitLab docs, Token overview",
    ),
    _key(
        "sk_key",
        rf"sk-(?:[a-z0-9]{{20}}|(?:proj|svcacct|admin|none)-{_X}[a-z0-9_-]{{16}}|ant-[a-z]{{3,5}}[0-9]{{2}}-{_X}[a-z0-9_-]{{10}}"
        rf"|ant-{_X}[a-z0-9]{{8}}|or-(?:v1-)?[a-f0-9]{{16}}|lf-[a-f0-9]{{8}}-)",
        "an sk- key: OpenAI, Anthropic, OpenRouter, Langfuse",
        "the API references of the four",
    ),
    _key(
        "model_service_key",
        r"(?:gsk_[a-z0-9]{40}|xai-[a-z0-9]{40}|pplx-[a-z0-9]{40}|r8_[a-z0-9]{36})",
        "a key of Groq, xAI, Perplexity or Replicate",
        "GitHub docs, Supported secret scanning patterns",
    ),
    _key(
        "slack_token",
        r"(?:xox[abeoprs](?:\.xox[bp])?-(?:[0-9]{1,12}-)?[0-9a-z]{10}|xapp-[0-9]-[a-z0-9]{6}"
        r"|hooks\.slack\.com/services/t[a-z0-9]{6,12}/b[a-z0-9]{6,12}/[a-z0-9]{8})",
        "a Slack token or webhook",
        "Slack docs, Token types, Incoming webhooks",
    ),
    _key(
        "google_key",
        rf"(?:aiza[0-9a-z_-]{{30}}|gocspx-{_X}[0-9a-z_-]{{20}}|ya29\.[0-9a-z_-]{{20}}|aaaa[0-9a-z_-]{{7}}:apa91b[0-9a-z_-]{{20}})",
        "a Google API key, OAuth secret or token",
        "Google Cloud docs, API keys, OAuth 2.0; Firebase",
    ),
    _key(
        "stripe_key",
        rf"(?:(?:sk|rk|pk)_(?:live|test)_{_X}[0-9a-z]{{15}}|whsec_{_X}[0-9a-z]{{24}})",
        "a Stripe key or webhook secret",
        "Stripe docs, API keys",
    ),
    _key(
        "package_token",
        r"(?:npm_[a-z0-9]{36}|pypi-ageichlwas5vcmc[a-z0-9_-]{10}|rubygems_[a-f0-9]{40}|dckr_pat_[a-z0-9_-]{20}|cio[a-z0-9]{32}"
        r"|oy2[a-z0-9]{43})",
        "a token of npm, PyPI, RubyGems, Docker Hub, crates.io or NuGet",
        "their docs on access tokens",
    ),
    _key(
        "huggingface_token", rf"hf_{_X}[a-z0-9]{{30}}", "a Hugging Face token", "Hugging Face docs, User access tokens"
    ),
    _key(
        "mail_key",
        r"(?:sg\.[a-z0-9_-]{20,24}\.[a-z0-9_-]{10}|key-[a-f0-9]{32}|[a-f0-9]{32}-us[0-9])",
        "a key of SendGrid, Mailgun or Mailchimp",
        "their docs; gitleaks rules",
        part="keys without a prefix",
    ),
    _key(
        "messenger_token",
        r"(?:[0-9]{8,10}:aa[a-z0-9_-]{33}"
        r"|discord(?:app)?\.com/api/webhooks/[0-9]{17,19}/[a-z0-9_-]{20}|sk[a-f0-9]{32})",
        "a token of Telegram or Twilio, a webhook of Discord",
        "Telegram Bot API; Discord and Twilio docs",
        part="keys without a prefix",
    ),
    _key(
        "shop_token",
        r"(?:shp(?:at|ss|ca|pa)_[a-f0-9]{32}|sq0(?:atp|csp)-[a-z0-9_-]{20})",
        "a token of Shopify or Square",
        "Shopify and Square docs",
    ),
    _key(
        "platform_token",
        rf"(?:do[opr]_v1_[a-f0-9]{{40}}|dapi[a-f0-9]{{32}}|hv[sbr]\.[a-z0-9_-]{{24}}"
        rf"|lin_api_[a-z0-9]{{30}}|ntn_[a-z0-9]{{40}}|secret_[a-z0-9]{{43}}|figd_[a-z0-9_-]{{30}}|pmak-[a-f0-9]{{24}}"
        rf"|nrak-[a-z0-9]{{27}}|gl(?:sa|c)_[a-z0-9]{{30}}|sntry[su]_{_X}[a-z0-9]{{20}}|dp\.[a-z]{{2,5}}\.[a-z0-9]{{30}}"
        r"|atatt3xff[a-z0-9_-]{10}|sbp_[a-f0-9]{40}|pscale_(?:tkn|pw|oauth)_[a-z0-9_-]{20})",
        "a token of DigitalOcean, Databricks, Vault, Linear, Notion, Figma, Postman, New Relic, Grafana, Sentry, "
        "Doppler, Atlassian, Supabase or PlanetScale",
        "their docs; GitHub docs, Supported secret scanning patterns",
    ),
    _key(
        "terraform_token",
        r"\.atlasv1\.[a-z0-9_-]{30}",
        "a token of Terraform Cloud",
        "HashiCorp docs; gitleaks rules",
        before="",
        part="keys without a prefix",
    ),
    _key(
        "azure_key",
        r"(?:accountkey=[a-z0-9+/]{40}|[?&]sig=[a-z0-9%+/]{30})",
        "an Azure storage key or shared access signature",
        "Azure Storage docs",
        before="",
        part="azure",
    ),
    _key(
        "jwt",
        r"eyj(?:hbgcioi|0exaioi|rawqioi|lbmmioi|jdhkioi|6axaioi)[a-z0-9]{4}",
        "a JSON Web Token, by its header",
        "RFC 7519",
    ),
)
