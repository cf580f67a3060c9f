"""The patterns of `pii`: numbers that name a person or an account. It knows only what a pattern is."""

from __future__ import annotations

from espalier.constraints.safety.patterns.pattern import NO_DIGIT, START, SafetyPattern

_AREA = r"(?:00[1-9]|0[1-9][0-9]|[1-57-8][0-9][0-9]|6(?:[0-57-9][0-9]|6[0-57-9]))"
_SERIAL = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9][0-9]|[1-9][0-9][0-9][0-9])"
_IS = r"[\"']?[ \t]*(?:[:=#]|is)?[ \t]*[\"']?"
"""Between the name of a number and the number."""
_NO = r"(?:[ \t_-]*(?:number|num|no\.?|nr\.?|id))"


def _pii(
    name: str,
    itself: str,
    about: str,
    *,
    before: str = START,
    after: str = "",
    source: str = "",
    is_option: bool = False,
) -> SafetyPattern:
    return SafetyPattern(
        name=name,
        category="pii",
        itself=itself,
        about=about,
        before=before,
        after=after,
        source=source,
        is_option=is_option,
    )


PII: tuple[SafetyPattern, ...] = (
    _pii(
        "ssn",
        rf"{_AREA}(?:-(?:0[1-9]|[1-9][0-9])-|[ ](?:0[1-9]|[1-9][0-9])[ ]){_SERIAL}",
        "a US Social Security number with hyphens or spaces, of an area and group that can be",
        before=r"(?:^|[^\w.@ -]|(?:^|[^0-9])[ ])",
        after=NO_DIGIT,
        source="Social Security Administration, high group list and randomisation FAQ",
    ),
    _pii("ssn_named", rf"(?:ssn|social security(?:{_NO})?){_IS}[0-9]{{9}}", "SSN and nine digits", after=NO_DIGIT),
    SafetyPattern(
        name="card",
        category="pii",
        itself="",
        about="a payment card: an issuer's first digits and length, a valid Luhn sum",
        source="ISO/IEC 7812-1, the networks' ranges",
        detector="card",
    ),
    _pii(
        "card_code",
        r"(?:cvv2?|cvc2?|(?:card )?security code)[\"']?[ \t]*(?:[:=]|is)?[ \t]*[\"']?[0-9]{3}",
        "CVV or CVC and three digits",
        source="PCI DSS glossary",
    ),
    _pii(
        "iban",
        r"(?:(?:at|ba|be|bg|br|cr|cy|cz|de|dk|ee|es|fi|fo|fr|gl|gr|hr|hu|il|is|lt|me|mk|no|pl|pt|rs|se|si|sk|tn|ua|xk)"
        r"[0-9]{2}[ ]?[0-9]{4}[ ]?[0-9]{4}[ ]?[0-9]{3}"
        r"|(?:gb|ie|nl|lv|ro|bh|qa|pk|gi|md|az)[0-9]{2}[ ]?[a-z]{4}[ ]?[0-9]{4}[ ]?[0-9]{4}"
        r"|(?:kw|jo)[0-9]{2}[ ]?[a-z]{4}[ ]?[0-9]{4}|mt[0-9]{2}[ ]?[a-z]{4}[ ]?[0-9]{4}"
        r"|(?:ch|li|lu|it|sm|ae|sa|tr|mc|kz)[0-9]{2}[ ]?[a-z0-9][0-9]{3}[ ]?[0-9]{4}[ ]?[0-9]{3})",
        "an IBAN of 56 countries by its shape: the country, two digits and the first part of the account; its check "
        "digits are not looked at",
        source="SWIFT IBAN registry (ISO 13616)",
    ),
    _pii(
        "birth_date",
        rf"(?:date of birth|birth[ _-]?date|dob){_IS}(?:[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}"
        rf"|[0-9]{{1,2}}[/.][0-9]{{1,2}}[/.][0-9]{{2}})",
        "a date of birth, named as such",
    ),
    _pii(
        "identity_number",
        rf"(?:(?:passport|driver'?s licen[cs]e|nhs|national insurance|national id|aadhaar|cpf){_NO}?|nino){_IS}"
        r"(?:[a-z]{1,2}[ ]?[0-9]{2}[ ]?[0-9]{2}[ ]?[0-9]{2}|[a-z]?[0-9]{6}|[0-9]{3,4}[ .]?[0-9]{3,4}[ .]?[0-9]{3,4})",
        "a passport, licence, NHS, national insurance or other identity number, named as such",
        source="ICAO 9303; gov.uk; UIDAI; Receita Federal",
    ),
    _pii(
        "account_number",
        rf"(?:(?:bank )?account{_NO}{_IS}[0-9]{{7}}|routing{_NO}{_IS}[0-9]{{9}})",
        "a bank account or routing number, named as such",
    ),
    _pii(
        "email", r"[a-z0-9_%+-]@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2}", "an e-mail address", before="", is_option=True
    ),
    _pii(
        "phone",
        r"(?:\+[1-9][0-9]{0,2}[ .-]?(?:\([0-9]{1,4}\)[ ]?)?[0-9](?:[ .-]?[0-9]){6}"
        r"|(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[.-])[2-9][0-9]{2}[ .-][0-9]{4})",
        "a telephone number: +, the country and seven digits, or three, three and four of North America",
        before=r"(?:^|[^\w.@+-])",
        is_option=True,
    ),
)
