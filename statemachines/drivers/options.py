"""Options: what the commands of nodes have in common, as parameters of typer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from statemachines.kernel import ConfigurationError

if TYPE_CHECKING:
    from statemachines.drivers.credentials import Credentials

SECRET_VARIABLE: Final = "GAPLESS_SECRET"

Name = Annotated[str, typer.Option(help="Name of this node.")]
NameOrChance = Annotated[
    str | None, typer.Option("--name", help="Name of this node; default: made of host, process and chance.")
]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it listens; port 0: any that is free.")]
Dial = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where that node listens.")]
State = Annotated[
    Path, typer.Option(metavar="DIR", help="Where the number of each start is kept, and what the node keeps in files.")
]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Append a log of every step there. It names the run, if the environment does so as GAPLESS_RUN.",
    ),
]
Metrics = Annotated[
    str,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Where GET /metrics (OpenMetrics) and GET /health are answered; default: nowhere. Whoever reaches the "
        "port may read both.",
    ),
]
NUMBER_MAX: Final = 2**23 - 1
"""Messages are numbered from it times 2^40, in 64 bits."""

MS_MAX: Final = 2**40 - 1
"""The longest time that an option takes, in milliseconds: as nanoseconds it fits 64 bits of a database."""

Number = Annotated[
    int | None,
    typer.Option(help="Numbers the messages in traces; default: from the name.", min=1, max=NUMBER_MAX),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The secret that all nodes share, 16 bytes or more; or put it into the environment as GAPLESS_SECRET. "
        "Two lines: both are accepted, and the first is proved.",
    ),
]
TlsCert = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Certificate of this node (PEM), for TLS; with --tls-key.")
]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (PEM, no passphrase).")]
ListeningCa = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Ask each peer for a certificate signed by these (PEM), for its own name."),
]
DiallingCa = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Speak TLS; who signed the certificate of the other side (PEM).")
]


def read_credentials(
    secret_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    *,
    role_secret_file: Path | None = None,
    role: str = "",
) -> Credentials:
    """The credentials in these files, checked; secrets may also stand in the environment, that of nodes of `role` alone
    as GAPLESS_ROLE_SECRET."""
    from statemachines.drivers.credentials import Credentials  # brings ssl, which no help needs

    role_secret = None
    if role:
        variable, option = f"GAPLESS_{role.upper()}_SECRET", f"--{role}-secret-file"
        role_secret = _in_environment(variable, option, role_secret_file)
    return Credentials(
        secret_file=secret_file,
        secret=_in_environment(SECRET_VARIABLE, "--secret-file", secret_file),
        role_secret_file=role_secret_file,
        role_secret=role_secret,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_ca=tls_ca,
    )


def _in_environment(variable: str, option: str, path: Path | None) -> bytes | None:
    """The secret that stands there; raises `ConfigurationError` where a file is given as well."""
    secret = os.environ.get(variable)
    if secret is not None and path is not None:
        raise ConfigurationError(
            option, str(path), f"{variable} is set in the environment as well; give one of the two"
        )
    return None if secret is None else secret.encode(errors="surrogateescape")
