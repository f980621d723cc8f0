"""`gapless env-archive`: an archive of the environment with its interpreter, for the executors of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from statemachines.interrupts import begin_work


def write_archive(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive: *.tar.gz or *.tgz.")],
    packages: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME", help="A distribution that your protocol needs besides; repeatable."),
    ] = None,
) -> None:
    """Write an archive of this environment with its interpreter, for executors without the driver's Python.

    It holds the interpreter and the libraries that tasks need.  Our code and that of protocols is sent by the driver of
    each command.  Executors need the same kind of system and processor (page "Spark on a cluster").

        gapless env-archive environment.tar.gz

        gapless analyze /shared/sim --engine spark --master spark://host:7077 \\
            --conf spark.archives=environment.tar.gz#environment --conf spark.pyspark.python=./environment/bin/python
    """
    from statemachines.spark.environment_archive import write_environment

    begin_work()
    content = write_environment(file, packages or ())
    listed = ", ".join(f"{name} {version}" for name, version in content.versions.items())
    print(f"{file}: {file.stat().st_size / 1e6:,.0f} MB, {content.files:,} files; {listed}")
    print(f"--conf spark.archives={file}#environment --conf spark.pyspark.python=./environment/bin/python")
