"""The command `gapless`.

Exit codes: 0 held, 1 violated, 2 usage, 3 inconclusive, 5 where we ourselves fail.  A command loads what it needs
when it runs, so that one without extras works without them; `--json` goes to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import errno
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from io import TextIOWrapper
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from statemachines import __version__
from statemachines.commands.command_list import COMMANDS
from statemachines.commands.exits import Exit
from statemachines.commands.lazy import ProtocolCommands
from statemachines.interrupts import INTERRUPTED, end_on_sigterm, leave_threads
from statemachines.kernel import ConfigurationError, GaplessError, InvariantViolated, Superseded
from statemachines.kernel.protocol import GROUP
from statemachines.plain_text import plain_lines

EXTRAS: Final = {
    "sim": ("simpy", "pyarrow", "numpy"),
    "spec": ("networkx", "numba", "numpy"),
    "testing": ("hypothesis", "pytest"),
    "sql": ("sqlalchemy",),
    "postgres": ("psycopg",),
    "zenoh": ("zenoh",),
    "shm": ("atomicshm",),
    "reports": ("pyspark", "pyarrow", "pandas", "duckdb", "jinja2", "markupsafe", "numpy"),
    "connect": ("grpc",),
    "bench": ("polars", "duckdb", "redis"),
}
"""Extra of this distribution -> packages that it brings; a package of several is of the extra of the command."""

OURS: Final = frozenset(f"statemachines{part}" for part in ("", "_sim", "_spec", "_reports", "_bench"))

UsageError: Final = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""What every wrong use of a command is; typer gives its parts alone a public name."""

app = typer.Typer(
    name="gapless",
    cls=ProtocolCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="State machines of protocols that deliver without gaps: look at them, run them, check them, judge traces.",
    epilog="Exit codes: 0 held, 1 violated, 2 wrong usage, 3 inconclusive, 5 gapless itself failed.",
)


def main() -> None:
    """The command, in a process of its own.  A node ends in a way of its own, and has nothing to clean up until it
    lives."""
    print_anything()
    if sys.argv[1:2] != ["node"]:
        end_on_sigterm()
    code = run()
    if code == INTERRUPTED:
        leave_threads(code)
    sys.exit(code)


def print_anything() -> None:
    """What a locale has no letters for (`LC_ALL=C`) is printed escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command (`sys.argv` without arguments); its exit code."""
    try:
        ended = app(args=arguments, prog_name="gapless", standalone_mode=False)
        return ended if isinstance(ended, int) else Exit.HELD
    except SystemExit as ended:
        place = find_culprit(ended)
        if place:
            return _fail(f"{place}: the code that was given ends the process: sys.exit({ended.code!r})", Exit.USAGE)
        return ended.code if isinstance(ended.code, int) else Exit.HELD
    except UsageError as error:
        return _refuse_usage(error)
    except typer.Abort:
        return _fail("the input ended before what was asked for was there; nothing was done", Exit.USAGE)
    except ImportError as error:
        return _missing(error, *[one for one in arguments or sys.argv[1:] if one in COMMANDS][:1])
    except InvariantViolated as error:
        return _fail(str(error), Exit.VIOLATED)
    except Superseded as error:
        return _fail(str(error), Exit.SUPERSEDED)
    except ConfigurationError as error:
        is_flag = error.value is True
        return _fail(f"{error.key}: {error.rule}" if is_flag else str(error), Exit.USAGE)
    except GaplessError as error:
        return _fail(str(error), Exit.USAGE)
    except OSError as error:
        return _fail(_of_system(error), Exit.USAGE)
    except Exception as error:
        return _blame(error)


def _blame(error: Exception) -> int:
    """One line where somebody else's code has raised, and all there is where ours has."""
    place = find_culprit(error)
    if place:
        text = f"{place}: {type(error).__name__}: {error}"
        return _fail(f"{text}; that is in the code that was given, and not in gapless", Exit.USAGE)
    traceback.print_exception(error)
    return _fail("this is a mistake of gapless itself; nothing has been decided", Exit.FAILED)


def find_culprit(error: BaseException) -> str:
    """Where somebody else's code has raised, or is not called as it is declared ("": ours has)."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        name, file = str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename
        if is_given(name, file):
            return f"{file}:{line}, in {frame.f_code.co_qualname}"
        if name.partition(".")[0] in OURS:
            break
    called = re.match(r"([\w.]+)\(\) (takes|missing|got) ", str(error)) if isinstance(error, TypeError) else None
    for name, module in list(sys.modules.items()) if called else ():
        with suppress(AttributeError):
            code = attrgetter(f"{called[1]}.__code__")(module) if called else None
            if code is not None and is_given(name, code.co_filename):
                return f"{code.co_filename}:{code.co_firstlineno}, in {code.co_qualname}"
    return ""


def is_given(module: str, file: str) -> bool:
    """Whether code is neither ours nor a library's; a protocol that is installed is somebody's."""
    package = module.partition(".")[0]
    if package in OURS or package in sys.stdlib_module_names:
        return False
    is_library = bool({"site-packages", "dist-packages"} & set(Path(file).parts))
    return not is_library or package in {one.module.partition(".")[0] for one in entry_points(group=GROUP)}


MENDS: Final = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "name a place that this user may write to"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (ulimit -n), and run it again"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, and run it again"),
}
"""What to do where the operating system does not let us."""


def _of_system(error: OSError) -> str:
    """What the operating system says, with the file that it is about first."""
    mend = MENDS.get(error.errno or 0)
    where = str(error) if error.filename is None or error.strerror is None else f"{error.filename}: {error.strerror}"
    return f"{where}{f'; {mend}' if mend else ''}"


def _refuse_usage(error: Any) -> int:
    """A command that was given wrongly: one line says what was wrong, and where all is said that it takes.  A command
    that takes something and was given nothing prints its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return Exit.USAGE
    where = error.ctx.command_path if error.ctx else "gapless"
    said = " ".join(error.format_message().split()).rstrip(".")
    return _fail(f"{said}; see `{where} -h`", Exit.USAGE)


def _fail(text: str, code: Exit) -> int:
    print(f"error: {plain_lines(text)}", file=sys.stderr)
    return code


def _missing(error: ImportError, command: str = "") -> int:
    """A package of an extra is not installed, or what somebody else's module imports; else the mistake is ours."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    if not extras or find_culprit(error):
        return _blame(error)
    own = COMMANDS[command].extra if command else ""
    extra = own if own in extras else extras[0]
    return _fail(f"this command needs the extra '{extra}': pip install 'gapless[{extra}]'", Exit.USAGE)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gapless {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
