"""The "format" of JSON schema: regular expressions for those that a grammar enforces (pure Python).

What is generated is often less than a format allows, and never more: a year has four digits and does not begin with 0,
29 February does not occur, an IPv6 address has its eight groups.
"""

from __future__ import annotations

__all__ = ["FREE_FORMATS", "NUMBER_FORMATS", "STRING_FORMATS"]

_DATE = (
    r"[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_HOURS = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOURS}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{_HOURS})"
_HEX = "[0-9a-f]"
_UUID = rf"{_HEX}{{8}}-{_HEX}{{4}}-[1-8]{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,5}}"
_NAME = "[A-Za-z0-9_+-]{1,30}"
_URL_CHARS = r"[A-Za-z0-9._~-]"
_TIME_PARTS = r"T(?:[0-9]{1,6}H(?:[0-9]{1,6}M(?:[0-9]{1,6}S)?)?|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}S)"
_DATE_PARTS = r"(?:[0-9]{1,6}Y(?:[0-9]{1,6}M(?:[0-9]{1,6}D)?)?|[0-9]{1,6}M(?:[0-9]{1,6}D)?|[0-9]{1,6}D)"

STRING_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": rf"P(?:{_DATE_PARTS}(?:{_TIME_PARTS})?|{_TIME_PARTS}|[0-9]{{1,6}}W)",
    "uuid": _UUID,
    "email": rf"{_NAME}(?:\.{_NAME}){{0,2}}@{_LABEL}(?:\.{_LABEL}){{0,3}}\.[A-Za-z]{{2,10}}",
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": rf"{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{7}}",
    "uri": rf"https?://{_HOST}(?::[1-9][0-9]{{0,3}})?(?:/{_URL_CHARS}*)*(?:\?{_URL_CHARS}+=?{_URL_CHARS}*)?",
}

# Hints that say nothing about which texts are right.
FREE_FORMATS = frozenset({"password", "path", "file-path", "directory-path", "float", "double"})

NUMBER_FORMATS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
