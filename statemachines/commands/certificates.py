"""`gapless check --certificates`: explore again what certificates are about, and write anew those that are stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemachines.commands.exits import Exit, end_if
from statemachines.commands.progress import bar
from statemachines.plain_text import plain_json

if TYPE_CHECKING:
    from statemachines_spec.certificate_set import Recheck

RENEW = "gapless check --certificates --stale --renew"
"""The one command that writes anew whatever is stale."""


def recheck_certificates(names: tuple[str, ...], *, stale: bool, renew: bool, jobs: int, json: bool) -> None:
    """Explore the systems of the certificates of these protocols again (none named: of all), small ones first, and say
    what came of each.  Ctrl-C keeps what was written."""
    from statemachines_spec import certificate_set

    listed = certificate_set.list_certificates(names)
    chosen = tuple(one for one in listed if certificate_set.is_stale(one)) if stale else listed
    results: list[Recheck] = []
    with bar("certificates") as advance:
        advance(0, len(chosen))
        for result in certificate_set.recheck_all(chosen, write=renew, jobs=jobs):
            results.append(result)
            advance(len(results), len(chosen))
            if not json:
                _show(result)
    wrong = [one for one in results if one.broken or not (one.agrees or one.written)]
    if json:
        shown = [
            {
                "certificate": str(one.kept.path),
                "differences": one.differences,
                "broken": one.broken,
                "written": one.written,
                "states": one.states,
                "seconds": one.seconds,
            }
            for one in results
        ]
        print(plain_json({"certificates": len(listed), "rechecked": shown}))
    else:
        states, seconds = sum(one.states for one in results), sum(one.seconds for one in results)
        print(
            f"{len(listed)} certificates, {len(results)} explored again: {states:,} states in {seconds:.0f} s of work; "
            f"{sum(one.written for one in results)} written anew, {len(wrong)} wrong"
        )
        if wrong and not renew:
            print(f"if the differences are right: {' '.join((RENEW, *names))}")
    end_if((wrong, Exit.VIOLATED))


def _show(one: Recheck) -> None:
    verdict = one.broken or ("written anew" if one.written else "the same" if one.agrees else "DIFFERS")
    print(f"{one.kept.name}: {verdict}; {one.states:,} states, {one.seconds:.1f} s", flush=True)
    for line in one.differences:
        print(f"  {line}", flush=True)
