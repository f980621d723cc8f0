"""`gapless password`: a line of a password file."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Final

import typer

from statemachines.kernel import ConfigurationError

LINE_MAX: Final = 4_096


def password(user: Annotated[str, typer.Argument(metavar="USER", help="The name of the user.")]) -> None:
    """Print a line for a password file: the user, and a hash of the password.

    It asks for the password twice on a terminal; else it reads one line of the standard input.

        gapless password alice >> users.txt
    """
    from statemachines.drivers.password_file import hash_password

    print(hash_password(user, _read_password()))


def _read_password() -> str:
    if not sys.stdin.isatty():
        line = sys.stdin.readline(LINE_MAX)
        if len(line) == LINE_MAX:
            raise ConfigurationError("password", "...", f"must be a line of less than {LINE_MAX} characters")
        return line.rstrip("\r\n")
    given = getpass.getpass("Password: ")
    if given != getpass.getpass("The same again: "):
        raise ConfigurationError("password", "...", "was typed in two ways; try again")
    return given
