"""Password file: users, each with a hash of the password.

    alice:scrypt:16384:8:1:0pOfHZuc6uHnKmcVyvCt4g==:7Xk3...      # gapless password alice >> users.txt

    users = PasswordFile("users.txt")
    await users.check_password("alice", b"correct horse")

Lines of `mosquitto_passwd` (`alice:$7$101$SALT$HASH`, and the older `$6$`) are taken too.

A hash costs 16 MB and some 50 ms of a processor, in a thread.  An unknown user costs as much as a known one.  The
password with which a user was right last is known again without a hash, so guesses do not keep its clients out.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
import re
import secrets
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from statemachines.drivers.credentials import read_private
from statemachines.drivers.permission_file import bad_line, list_lines
from statemachines.kernel import ConfigurationError

logger = logging.getLogger("gapless")

KEY: Final = "passwords"
KIND: Final = "scrypt"
COST: Final = (2**14, 8, 1)
"""N, r and p of scrypt."""

MEMORY_MAX: Final = 64 * 2**20
"""Bytes that one hash may need: 128 N r."""

WORK_MAX: Final = 2**22
"""And what it may cost at most: N r p."""

SALT_SIZE: Final = 16
HASH_SIZE: Final = 32
USER_MAX: Final = 256
"""Characters of the longest user name."""

PASSWORD_MAX: Final = 1_024
"""Bytes of the longest password."""

VERIFIED_AT_ONCE: Final = 2
WAITING_MAX: Final = 128
"""Passwords that wait to be verified; beyond, none is verified."""

ADDRESS_SHARE: Final = 2
USER_SHARE: Final = 4
"""One address has at most a half of these places, and one user name a quarter: guesses leave places for others."""


class PasswordHash(msgspec.Struct, frozen=True):
    """A line of the file, without its user: scrypt's parameters, salt and result.  A cost of one number: iterations of
    PBKDF2 with SHA-512, or (0) SHA-512 alone, as `mosquitto_passwd` has them."""

    cost: tuple[int, ...]
    salt: bytes
    digest: bytes

    def is_of(self, password: bytes) -> bool:
        """Whether it is the hash of this password."""
        size = len(self.digest)
        if len(self.cost) > 1:
            found = _digest(password, self.salt, self.cost, size)
        elif self.cost[0]:
            found = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.cost[0], size)
        else:
            found = hashlib.sha512(password + self.salt).digest()
        return hmac.compare_digest(found, self.digest)


class PasswordFile:
    """The users in a file, as they were when it was read last.

    Raises `ConfigurationError` that names the first bad line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._users = _read(self._path)
        self._nobody = PasswordHash(COST, secrets.token_bytes(SALT_SIZE), secrets.token_bytes(HASH_SIZE))
        self._turn = asyncio.Semaphore(VERIFIED_AT_ONCE)
        self._waiting: Counter[tuple[str, str | None]] = Counter()
        """Passwords that wait, in all under ("", None), of an address, and of a user."""
        self._key = secrets.token_bytes(HASH_SIZE)
        self._right: dict[str, tuple[PasswordHash, bytes]] = {}
        """User -> its line, and a digest under our key of the password that was right."""

    def reload(self) -> bool:
        """Read the file again; False: it is bad, the log says why, and the users of before stay."""
        try:
            self._users = _read(self._path)
        except ConfigurationError as error:
            logger.error("%s; the users of before stay", error)
            return False
        logger.info("%s was read again", self._path)
        return True

    def is_busy(self, user: str | None, address: str = "") -> bool:
        """Whether so many passwords wait, in all, of this address or of this user, that the next one is not
        verified."""
        shares = zip(_places(user, address), (1, ADDRESS_SHARE, USER_SHARE), strict=True)
        return any(self._waiting[place] >= WAITING_MAX // share for place, share in shares)

    def is_known(self, user: str | None, password: bytes | None) -> bool:
        """Whether this user was right with this password before, and its line is still the same."""
        if user is None or password is None or len(password) > PASSWORD_MAX or user not in self._right:
            return False
        line, digest = self._right[user]
        return self._users.get(user) == line and hmac.compare_digest(digest, self._digest_of(password))

    def is_kept(self, user: str) -> bool:
        """Whether the line of this user, who was let in, is still the same."""
        return user in self._right and self._users.get(user) == self._right[user][0]

    async def check_password(self, user: str | None, password: bytes | None, address: str = "") -> bool:
        """Whether it is the password of this user (None: none was given), who connects from this address."""
        if self.is_known(user, password):
            return True
        given = password or b""
        if len(given) > PASSWORD_MAX or self.is_busy(user, address):
            return False
        kept = None if user is None else self._users.get(user)
        places = _places(user, address)
        self._waiting.update(places)
        try:
            async with self._turn:
                is_right = await asyncio.to_thread((kept or self._nobody).is_of, given)
        finally:
            self._waiting.subtract(places)
            for one in places:
                if not self._waiting[one]:
                    del self._waiting[one]
        if not is_right or user is None or kept is None or password is None:
            return False
        self._right[user] = kept, self._digest_of(password)
        return True

    def _digest_of(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")


def _places(user: str | None, address: str) -> tuple[tuple[str, str | None], ...]:
    """What a password that waits is counted under: all, its address, and its user."""
    return ("", None), ("address", address), ("user", user)


def hash_password(user: str, password: str) -> str:
    """The line of a user; raises `ConfigurationError` for a name or a password that cannot be."""
    if not user or len(user) > USER_MAX or user == "*" or set(user) & set(":#/+{} ") or not user.isprintable():
        rule = f"must have 1 to {USER_MAX} characters that can be printed, none of space : # / + {{ }}, and not be *"
        raise ConfigurationError("user", user, rule)
    given = password.encode(errors="surrogateescape")
    if not 1 <= len(given) <= PASSWORD_MAX:
        raise ConfigurationError("password", "...", f"has {len(given)} bytes; 1 to {PASSWORD_MAX} are taken")
    salt = secrets.token_bytes(SALT_SIZE)
    parts = [user, KIND, *map(str, COST), _text(salt), _text(_digest(given, salt, COST, HASH_SIZE))]
    return ":".join(parts)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _digest(password: bytes, salt: bytes, cost: tuple[int, ...], size: int) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=2 * MEMORY_MAX, dklen=size)


def _read(path: Path) -> dict[str, PasswordHash]:
    users: dict[str, PasswordHash] = {}
    for number, line in list_lines(KEY, path, read_private(KEY, path)):
        user, _, rest = line.partition(":")
        found = _parse(rest)
        if found is None or not user:
            raise bad_line(
                KEY, path, number, "is no line of `gapless password USER`, nor of mosquitto_passwd; make it anew"
            )
        if user in users:
            raise bad_line(KEY, path, number, f"has the user {user[:40]!r} once more; keep one line")
        users[user] = found
    return users


def _parse(text: str) -> PasswordHash | None:
    """None: it is no hash that we take."""
    if text.startswith("$"):
        return _parse_mosquitto(text.split("$")[1:])
    parts = text.split(":")
    if len(parts) != 6 or parts[0] != KIND or not all(one.isascii() and one.isdigit() for one in parts[1:4]):
        return None
    n, r, p = (int(one) if len(one) <= 9 else 0 for one in parts[1:4])
    if n < 2 or n & (n - 1) or not r or not p or 128 * n * r > MEMORY_MAX or n * r * p > WORK_MAX:
        return None
    salt, digest = _bytes(parts[4]), _bytes(parts[5])
    if len(salt) < SALT_SIZE or not SALT_SIZE <= len(digest) <= 64:
        return None
    return PasswordHash((n, r, p), salt, digest)


def _parse_mosquitto(parts: list[str]) -> PasswordHash | None:
    if len(parts) == 3 and parts[0] == "6":
        parts = ["7", "0", *parts[1:]]
    elif len(parts) != 4 or parts[0] != "7" or not re.fullmatch(r"[1-9][0-9]{0,6}", parts[1]):
        return None
    salt, digest = _bytes(parts[2]), _bytes(parts[3])
    return PasswordHash((int(parts[1]),), salt, digest) if salt and len(digest) == 64 else None


def _bytes(text: str) -> bytes:
    """Of base64; none where it is not."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
