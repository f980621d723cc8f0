"""A pgbouncer of our own in front of a PostgreSQL database, in transaction mode: each transaction has another
connection of the server."""

import shutil
import signal
import socket
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import make_url
from waiting import until

from statemachines.testing.postgres import make_bound_command, run_as
from statemachines.testing.process_harness import free_port

PROGRAM = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
"""Debian puts it where only root looks."""

SETTINGS = """
[databases]
* = host={host} port={port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_reset_query_always = 0
{more}
"""


@contextmanager
def pgbouncer(url, directory, *, more=""):
    """The URL of the database at `url` behind it; `more`: settings."""
    address, listen = make_url(url), free_port()
    directory.chmod(0o755)  # it runs as another user
    settings = Path(directory) / f"pgbouncer-{listen}.ini"
    settings.write_text(SETTINGS.format(host=address.host, port=address.port, listen=listen, more=more))
    for parent in settings.parents[:4]:
        with suppress(PermissionError):
            parent.chmod(parent.stat().st_mode | 0o055)
    command = [*make_bound_command(), PROGRAM, str(settings)]
    with (Path(directory) / f"pgbouncer-{listen}.log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **run_as())
    try:
        until(lambda: _is_listening(listen), Path(log.name).read_text, child=child)
        yield address.set(port=listen).render_as_string(hide_password=False)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def _is_listening(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
