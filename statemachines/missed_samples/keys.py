"""Keys: where publishers, caches and tokens are found under a key expression, in two layouts.

`plain` is the source's: `<source id>/<key expression>`, `*/<key expression>` for all sources.  `advanced` is that of
zenoh's advanced publishers: `<key expression>/@adv/pub/<zid>/<eid>/_`, where the source id is `<zid>/<eid>`; `@adv` is
verbatim, so `<key expression>/**` does not match it.  Both only make and read text; hostile text is refused
(source: "The `ReliabilityCache`", "The `ReliableSubscriber`").
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from statemachines.missed_samples.message import EVERY_SOURCE

KEY_MAX = 4_096
"""Characters of a key."""

_CHUNK = re.compile(r"(?:\*|\*\*|@?(?:[^/*$#?\s\x00-\x1f]|\$\*)+)\Z")
_PLAIN_SOURCE = re.compile(r"[A-Za-z0-9_.~\-]{1,128}\Z", re.ASCII)
_ZID = re.compile(r"[1-9a-f][0-9a-f]{0,31}\Z", re.ASCII)
_EID = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z", re.ASCII)
_ADVANCED = "/@adv/"


class BadKey(ValueError):
    """A key, or a part of one, that cannot be; the text says which, what was seen, and what is expected."""

    def __init__(self, what: str, seen: str, expected: str) -> None:
        super().__init__(f"{what} {seen[:80]!r}: expected {expected}")


class KeyPlace(msgspec.Struct, frozen=True):
    """What a key says: the `source` (`EVERY_SOURCE`: all) and the `expression` that its samples go under."""

    source: str
    expression: str


def check_expression(expression: str) -> str:
    """Itself; raises `BadKey` for what is no key expression: chunks apart by `/`, none empty, no `#`, `?` or space;
    `*` is any chunk, `**` any number of them, `$*` any part of one, and `**/**` is said shorter."""
    chunks = expression.split("/")
    if len(expression) > KEY_MAX or not all(map(_CHUNK.match, chunks)):
        raise BadKey("key expression", expression, f"chunks apart by /, of at most {KEY_MAX} characters")
    if any(one == other == "**" for one, other in pairwise(chunks)):
        raise BadKey("key expression", expression, "no ** behind another")
    return expression


def check_key(key: str) -> str:
    """Itself; raises `BadKey` for what is no key of a sample: a key expression without `*`."""
    if "*" in check_expression(key):
        raise BadKey("key", key, "one key, without *")
    return key


def matches(expression: str, key: str) -> bool:
    """Whether a key expression is about the key; a chunk that begins with `@` is matched by itself alone."""
    return _matches(expression.split("/"), key.split("/"))


# -- plain ----------------------------------------------------------------------------------------------------------


def plain_key(source: str, expression: str) -> str:
    """Where the samples of a source (or of `EVERY_SOURCE`) are asked for; raises `BadKey`."""
    if source != EVERY_SOURCE and not _PLAIN_SOURCE.match(source):
        raise BadKey("source", source, "1 to 128 letters, digits, '_', '.', '~' or '-'")
    return f"{source}/{check_expression(expression)}"


def read_plain(key: str) -> KeyPlace:
    """What the key of a query says; raises `BadKey`."""
    source, _, expression = key.partition("/")
    plain_key(source, expression)
    return KeyPlace(source, expression)


# -- advanced -------------------------------------------------------------------------------------------------------


def make_source_id(zid: str, eid: int) -> str:
    """The id of a source: session and entity, so that two publishers of one session differ; raises `BadKey`."""
    return _checked_source(f"{zid}/{eid}")


def make_source_key(source: str, expression: str) -> str:
    """The one key of a publisher: its cache, its heartbeats and its token; raises `BadKey`."""
    return f"{check_expression(expression)}/@adv/pub/{_checked_source(source)}/_"


def make_query_key(source: str, expression: str) -> str:
    """Where the samples of a source (or of `EVERY_SOURCE`) are asked for; raises `BadKey`."""
    if source == EVERY_SOURCE:
        return f"{check_expression(expression)}/@adv/**"
    return f"{check_expression(expression)}/@adv/*/{_checked_source(source)}/**"


def make_heartbeat_key(expression: str) -> str:
    """Where heartbeats and tokens of all publishers are; raises `BadKey`."""
    return f"{check_expression(expression)}/@adv/pub/**"


def read_advanced(key: str) -> KeyPlace:
    """Whose key it is: of a heartbeat, a token or a query; raises `BadKey`."""
    expression, found, rest = key.rpartition(_ADVANCED)
    check_expression(expression if found else "")
    if rest == "**":
        return KeyPlace(EVERY_SOURCE, expression)
    parts = rest.split("/")
    if len(parts) < 4 or parts[0] not in ("pub", "*"):
        raise BadKey("advanced key", key, "<key expression>/@adv/pub/<zid>/<eid>/_")
    check_expression(rest)
    return KeyPlace(_checked_source(f"{parts[1]}/{parts[2]}"), expression)


def _checked_source(source: str) -> str:
    zid, _, eid = source.partition("/")
    if not _ZID.match(zid) or not _EID.match(eid) or int(eid) >> 32:
        raise BadKey("source", source, "<zid>/<eid>: up to 32 hexadecimal digits, and a number of 32 bits")
    return source


# -- matching -------------------------------------------------------------------------------------------------------


def _matches(expression: list[str], key: list[str]) -> bool:
    """By the rest of both; places in the key that the expression so far may have reached."""
    reached = {0}
    for chunk in expression:
        if chunk == "**":
            reached = {to for place in reached for to in _any_number(key, place)}
        else:
            reached = {place + 1 for place in reached if place < len(key) and _is_of(chunk, key[place])}
        if not reached:
            return False
    return len(key) in reached


def _any_number(key: list[str], place: int) -> list[int]:
    found = [place]
    while place < len(key) and not key[place].startswith("@"):
        place += 1
        found.append(place)
    return found


def _is_of(chunk: str, key: str) -> bool:
    if chunk == key:
        return True
    if key.startswith("@") or chunk.startswith("@"):
        return False
    if chunk == "*":
        return True
    return "$*" in chunk and _has_parts(chunk.split("$*"), key)


def _has_parts(parts: list[str], text: str) -> bool:
    """The text is these parts, in order, with anything between them."""
    if len(text) < sum(map(len, parts)) or not text.startswith(parts[0]) or not text.endswith(parts[-1]):
        return False
    place, end = len(parts[0]), len(text) - len(parts[-1])
    for part in parts[1:-1]:
        found = text.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True
