"""Shown URL: what may be shown of the URL of a database, or of a text that is none and may hold a password."""

from __future__ import annotations

import re


def without_password(given: str) -> str:
    """What stands before the last `@` or behind `?` is left out; where the one is behind the other nobody can say what
    is a password, and nothing but the scheme is shown."""
    scheme, separator, rest = given.partition("://")
    if not separator:
        return given if not names_password(given) else "..."
    before, _, after = rest.rpartition("@")
    return f"{scheme}://..." if "?" in before else f"{scheme}://{after.partition('?')[0]}"


def names_password(given: str) -> bool:
    """Whether a text that is no URL says `password=...`, or is a URL of PostgreSQL whose `//` is missing."""
    return bool(re.search(r"(?i)pass(word|wd)?\s*=", given) or re.match(r"(?i)\s*postgres(ql)?(\+\w+)?:", given))


def without_secrets(command: str) -> str:
    """The command line of a process without what it was given to keep: passwords in URLs, and behind words for them."""
    hidden = re.sub(r"://[^\s/]*(:[^\s]*)?@", "://***@", command)
    return re.sub(r"(?i)((?:pass|secret|token)[\w-]*(?:=|\s+))\S+", r"\1***", hidden)
