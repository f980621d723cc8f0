"""Permission file: which users may connect as which client, subscribe and publish what.

    # USER     ACTION     WHAT
    *          connect    {user}              a client id: that of one's own name
    alice      connect    tablet-*            or any that begins so
    *          publish    devices/{client}/#
    alice      subscribe  $share/+/jobs/#     of any group

    permissions = PermissionFile("rights.txt")
    permissions.is_allowed(Identity(frozenset({"alice"})), "publish", "tablet-1", "devices/tablet-1/state")

Each line allows something, and nothing else is allowed: their order means nothing.  USER `*` is any client that was let
in.  A filter is allowed where one line contains it (`contains_filter`).  The last field reaches to the end of its line,
spaces within it too.  `{user}` stands for each name that the client has proved, `{client}` for its client id; a line
does not apply where such a name has one of `/ + #` or begins with `$`, since it would be more than a name.
"""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from statemachines.drivers.identity import Identity
from statemachines.drivers.topic import check_filter, contains_filter, is_shared
from statemachines.input_file import read_input
from statemachines.kernel import ConfigurationError

logger = logging.getLogger("gapless")

Action = Literal["connect", "subscribe", "publish"]
ACTIONS: Final = ("connect", "subscribe", "publish")

BYTES_MAX: Final = 4 * 2**20
"""Bytes of a file."""

ANYBODY: Final = "*"
USER: Final = "{user}"
CLIENT: Final = "{client}"
SIGNS: Final = re.compile(r"\{(?:user|client)\}")
KEY: Final = "permissions"


class Permission(msgspec.Struct, frozen=True):
    """`what` may be done: a filter, or a client id (`is_prefix`: or any that begins with it)."""

    what: str
    is_prefix: bool = False


Table = Mapping[tuple[str, str], tuple[Permission, ...]]
"""By user and action."""


class PermissionFile:
    """The permissions in a file, as they were when it was read last.

    Raises `ConfigurationError` that names the first bad line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._table = _read(self._path)

    def reload(self) -> bool:
        """Read the file again; False: it is bad, the log says why, and what was read before stays in force."""
        try:
            self._table = _read(self._path)
        except ConfigurationError as error:
            logger.error("%s; the permissions of before stay in force", error)
            return False
        logger.info("%s was read again", self._path)
        return True

    def is_allowed(self, identity: Identity, action: Action, client_id: str, topic: str) -> bool:
        """Whether a line allows it; `topic`: or a filter (connecting: nothing)."""
        return next(self._find_lines(identity, action, client_id, topic), None) is not None

    def owns_client(self, identity: Identity, client_id: str) -> bool:
        """Whether a line lets it connect that does not let anybody connect as a client of another, as `* connect *`."""
        return False in self._find_lines(identity, "connect", client_id, "")

    def _find_lines(self, identity: Identity, action: Action, client_id: str, topic: str) -> Iterator[bool]:
        """Of each line that allows it: whether it is one of any user and of many ids."""
        for user in (ANYBODY, *sorted(identity.names - {ANYBODY})):
            for one in self._table.get((user, action), ()):
                is_of_name = user == ANYBODY and USER in one.what
                names = identity.names if is_of_name else (user,)
                if any(_is_covered(one, action, name, client_id, topic) for name in names):
                    yield user == ANYBODY and one.is_prefix and not is_of_name


def _is_covered(permission: Permission, action: Action, user: str, client_id: str, topic: str) -> bool:
    values = {USER: user, CLIENT: client_id}
    if not all(_is_plain_name(value) for sign, value in values.items() if sign in permission.what):
        return False
    what = SIGNS.sub(lambda sign: values[sign[0]], permission.what)
    if action != "connect":
        return contains_filter(what, topic)
    return client_id.startswith(what) if permission.is_prefix else client_id == what


def _is_plain_name(value: str) -> bool:
    """It stands for itself alone, also within a filter."""
    return bool(value) and not value.startswith("$") and not set(value) & set("/+#")


def _read(path: Path) -> Table:
    data = read_input(path, KEY, BYTES_MAX)
    _check_mode(path)
    table: dict[tuple[str, str], list[Permission]] = defaultdict(list)
    for number, line in list_lines(KEY, path, data):
        user, action, permission = _parse(line, lambda rule, number=number: bad_line(KEY, path, number, rule))  # type: ignore[misc]
        table[user, action].append(permission)
    return {key: tuple(permissions) for key, permissions in table.items()}


def _parse(line: str, refuse: Callable[[str], ConfigurationError]) -> tuple[str, str, Permission]:
    parts = line.split(maxsplit=2)
    if len(parts) < 3:
        raise refuse("must be USER ACTION WHAT, with spaces between")
    user, action, what = parts
    if action not in ACTIONS:
        raise refuse(f"has the action {action[:40]!r}; there are {', '.join(ACTIONS)}")
    rest = what.replace(USER, "").replace(CLIENT, "")
    if "{" in rest or "}" in rest:
        raise refuse("has a brace; only {user} and {client} stand for something, and no other braces may be there")
    if action != "connect":
        try:
            check_filter(what.replace(USER, "u").replace(CLIENT, "c"))
        except ConfigurationError as error:
            raise refuse(f"{error.value!r} {error.rule}") from error
        if is_shared(what) and what.count("/") < 2:
            raise refuse(f"{what!r} is of a group and has no filter; say $share/GROUP/FILTER, or $share/+/FILTER")
        return user, action, Permission(what)
    if CLIENT in what:
        raise refuse("allows any client id by {client}; say * where that is meant")
    return user, action, Permission(what.removesuffix("*"), what.endswith("*"))


def list_lines(key: str, path: Path, data: bytes) -> Iterable[tuple[int, str]]:
    """The lines of a file that say something, with their numbers; `#` begins one that does not."""
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            raise bad_line(key, path, number, f"is no UTF-8: it has the byte 0x{line[error.start]:02x}") from error
        if text and not text.startswith("#"):
            if "\0" in text:
                raise bad_line(key, path, number, "has a character of number 0")
            yield number, text


def bad_line(key: str, path: Path, number: int, rule: str) -> ConfigurationError:
    """What is wrong with a line; the file is not used."""
    return ConfigurationError(key, f"{path}, line {number}", rule)


def _check_mode(path: Path) -> None:
    if os.name == "posix" and path.stat().st_mode & 0o002:
        raise ConfigurationError(KEY, str(path), "others may write it; chmod o-w it, and look at what it says now")
