"""SparkSettings: the master and the configuration that a user names, and our defaults for what nobody has set."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from statemachines.kernel import ConfigurationError

HERE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""A master elsewhere has to reach the driver, which nobody has to reach here."""

SHELL_NAMES: Final = ("pyspark-shell", "PySparkShell")
"""Names that Spark gives an application that has none."""


class SparkSettings(msgspec.Struct, frozen=True):
    """`master`: its URL ("": what Spark's own configuration says, which is local[*] by default); `conf`: settings of
    Spark by name.  Both win over everything else."""

    master: str = ""
    conf: dict[str, str] = {}

    @property
    def all_settings(self) -> dict[str, str]:
        """All that the user names, as settings of Spark."""
        return self.conf | ({"spark.master": self.master} if self.master else {})


NO_SETTINGS: Final = SparkSettings()


def read_settings(master: str, conf: Iterable[str]) -> SparkSettings:
    """The settings of a command line; raises `ConfigurationError` for a `conf` that is not KEY=VALUE, for a key that
    is no setting of Spark."""
    found: dict[str, str] = {}
    for one in conf:
        key, equals, value = one.partition("=")
        if not equals or not re.fullmatch(r"spark\.[\w.\-]+", key):
            raise ConfigurationError("--conf", one, "is no setting of Spark: give spark.KEY=VALUE")
        if found.setdefault(key, value) != value:
            raise ConfigurationError("--conf", one, f"gives {key} a second value, after {found[key]!r}: leave one out")
    for key in NEEDED.keys() & found.keys():
        if found[key] != NEEDED[key]:
            raise ConfigurationError("--conf", f"{key}={found[key]}", f"must be {NEEDED[key]} for our queries")
    if found.get("spark.master", master) != master and master:
        rule = f"is not that of --conf spark.master={found['spark.master']}: leave one out"
        raise ConfigurationError("--master", master, rule)
    return SparkSettings(master, found)


def is_connect(master: str) -> bool:
    """It is a server of Spark Connect."""
    return master.startswith("sc://")


def is_local(master: str) -> bool:
    """Its tasks run on this machine, in this environment."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def list_defaults(master: str, directory: str) -> dict[str, str]:
    """Setting -> value, for what the user has not set; `directory` is for files of this machine."""
    here = {**HERE, "spark.local.dir": directory} if is_local(master) else {}
    return {
        **here,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        **SESSION_DEFAULTS,
    }


SESSION_DEFAULTS: Final = {
    # The work is done by Python: what Java does is little, and over before its optimiser would pay.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    # The results of all tasks are few: planning, and making code, would cost more than going through them.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""Of a session, which make it start and plan sooner."""

NEEDED: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Names in double quotes, as everywhere but in Spark.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
}
"""What our queries are written for.  They are set in a session of our own, which shares nothing of it with others."""


def describe_conflict(key: str, value: str, there: Any) -> ConfigurationError:
    """A setting that the running Spark of this process has otherwise, and cannot change."""
    rule = f"cannot be set: the Spark of this process runs with {there}; stop it first, or leave the setting out"
    return ConfigurationError(key, value, rule)
