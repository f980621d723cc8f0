"""PasswordFile: user names and hashed passwords, in the format of `mosquitto_passwd`.

    users = PasswordFile("users.txt")              # lines NAME:$7$ITERATIONS$SALT$HASH
    await users.check_password("tablet", b"secret")

`hash_password` makes such a line.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from statemachines.kernel import ConfigurationError

ITERATIONS: Final = 100_000
ITERATIONS_MAX: Final = 10_000_000
FILE_MAX: Final = 16 * 2**20
RULE: Final = "must be NAME:$7$ITERATIONS$SALT$HASH, as mosquitto_passwd writes it"


class PasswordHash(NamedTuple):
    """How a password was hashed (PBKDF2 with SHA-512; 0 iterations: SHA-512 alone, as `$6$` says), and the result."""

    iterations: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        """Whether this is the hash of that password."""
        if self.iterations:
            found = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations, len(self.digest))
        else:
            found = hashlib.sha512(password + self.salt).digest()
        return hmac.compare_digest(found, self.digest)


def hash_password(name: str, password: bytes) -> str:
    """The line of a user."""
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, ITERATIONS)
    return f"{name}:$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


class PasswordFile:
    """The users of a file.  `reload` reads it again; connections of before stay.

    Raises:
        ConfigurationError: for a file that is not there, or has a line that is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._nobody = PasswordHash(ITERATIONS, secrets.token_bytes(12), bytes(64))
        self.reload()

    def reload(self) -> None:
        """Read the file; where that fails the users of before stay."""
        try:
            data = self._path.read_bytes()
            text = data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError("users", str(self._path), f"cannot be read: {error}") from error
        if len(data) > FILE_MAX:
            raise ConfigurationError("users", str(self._path), f"has {len(data)} bytes, and may have {FILE_MAX}")
        users: dict[str, PasswordHash] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                name, found = _parse_line(line.strip())
                if not name or found is None:
                    raise ConfigurationError("users", f"{self._path}, line {number}", RULE)
                users[name] = found
        self._users = users

    async def check_password(self, name: str | None, password: bytes | None) -> bool:
        """Whether the user may connect.  An unknown name takes as long as a wrong password."""
        known = None if name is None else self._users.get(name)
        check: Callable[[bytes], bool] = (known or self._nobody).matches
        is_right = await asyncio.to_thread(check, password or b"")
        return is_right and known is not None and password is not None


def _parse_line(line: str) -> tuple[str, PasswordHash | None]:
    name, _, rest = line.partition(":")
    parts = rest.split("$")[1:]
    try:
        if len(parts) == 3 and parts[0] == "6":
            return name, PasswordHash(0, base64.b64decode(parts[1], validate=True), base64.b64decode(parts[2]))
        if len(parts) == 4 and parts[0] == "7" and 0 < int(parts[1]) <= ITERATIONS_MAX:
            salt, digest = (base64.b64decode(one, validate=True) for one in parts[2:])
            return name, PasswordHash(int(parts[1]), salt, digest)
    except (binascii.Error, ValueError):
        pass
    return name, None
