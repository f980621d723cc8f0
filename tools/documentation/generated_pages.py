"""Pages that are generated from the code when the site is built; the repository has none of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import api_reference
import command_reference
import configuration_reference
import message_reference
import specification_pages

WRITERS: dict[str, Callable[[], str]] = {
    "reference/configuration.md": configuration_reference.write_page,
    "reference/commands.md": command_reference.write_page,
    "reference/messages.md": message_reference.write_page,
    **{f"reference/api/{page}.md": partial(api_reference.write_page, page) for page in api_reference.PACKAGES},
    **dict(specification_pages.list_writers()),
}
"""Address -> what writes the page."""


def write_pages() -> dict[str, str]:
    """Address -> text, of every generated page."""
    return {name: write() for name, write in WRITERS.items()}
