"""The source's `parameters:` block in a YAML file (extra `windows`).

Only what a safe loader makes of plain maps, lists and scalars: an alias or a tag, of which a file of a few bytes can
make gigabytes or objects, is refused before anything is built, and so is a file of more than 64 kB or of great depth.
"""

from __future__ import annotations

from pathlib import Path

from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows.windows import Windows, windows_of

FILE_MAX = 64 << 10
"""Bytes."""
DEPTH_MAX = 16
"""Lists and maps within each other, and the file itself: the time to read a file grows with the square of its depth."""


def read_windows(path: str | Path) -> Windows:
    """The windows that a file says; without a block `parameters` those by default.

    Raises `ConfigurationError` for a file that cannot be read, is too large, is no YAML, has aliases or tags, or says
    what cannot be; and where PyYAML is missing.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_MAX + 1)
    except OSError as error:
        raise ConfigurationError("file", str(path), f"cannot be read: {error.strerror}") from error
    if len(data) > FILE_MAX:
        raise ConfigurationError("file", str(path), f"has more than {FILE_MAX} bytes")
    return windows_of(_parameters(str(path), data))


def _parameters(name: str, data: bytes) -> dict[str, object]:
    try:
        import yaml
    except ImportError as error:
        rule = "needs PyYAML, which is missing: pip install 'gapless[windows]'"
        raise ConfigurationError("file", name, rule) from error
    try:
        depth = 0
        for token in yaml.scan(data, Loader=yaml.SafeLoader):
            where = token.start_mark.line + 1
            if isinstance(token, yaml.AliasToken | yaml.AnchorToken | yaml.TagToken):
                raise ConfigurationError("file", name, f"line {where}: aliases, anchors and tags are refused")
            kind = type(token).__name__
            depth += kind.endswith("StartToken") - kind.endswith("EndToken")
            if depth > DEPTH_MAX:
                raise ConfigurationError("file", name, f"line {where}: is nested more than {DEPTH_MAX} deep")
        found = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError("file", name, f"is no YAML: {' '.join(str(error).split())[:200]}") from error
    parameters = found.get("parameters") if isinstance(found, dict) else found
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise ConfigurationError("parameters", parameters, "must be a block of keys and values")
    return {str(key): value for key, value in parameters.items()}
