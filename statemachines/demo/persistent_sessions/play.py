"""The demo of persistent sessions: a real part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from statemachines.demo.input_lines import LineOptions
from statemachines.demo.protocol import Advance, DemoArguments, DemoGlance, DemoVerdict, PlayedDemo, Say, Trace

if TYPE_CHECKING:
    from statemachines.demo.persistent_sessions.broker_kill import BrokerRow
    from statemachines.demo.persistent_sessions.real import SessionRun


class SessionDemo:
    """Watch a client lose its node to SIGKILL while lines wait for it, and none of them; then the same with brokers."""

    title = "Persistent sessions: a client that loses its node, and no message"
    options = LineOptions

    def check(self, given: DemoArguments) -> None:
        options: LineOptions = given.options
        options.check()

    def play(self, out: Path, given: DemoArguments, say: Say, advance: Advance) -> PlayedDemo:
        """Real."""
        from statemachines.demo.persistent_sessions import broker_kill, real

        options: LineOptions = given.options
        came = real.run(out / "real", options.place, say, advance)
        account = came.account
        say(
            f"real: {account.delivered} of {account.stored} stored lines came, {account.again} of them again and "
            f"marked; the publisher waited {came.slowest_s:.2f} s at most; {came.seconds:.0f} s"
        )
        rows = broker_kill.kill_brokers(out / "brokers", say)
        return PlayedDemo(
            f"{account.stored:,} lines for a client whose node was killed while {came.waiting} stored lines had not "
            "come; it went on at another node, with the same session, and then took it over to a third connection. "
            "What came is compared with what was stored; Spark judges what writers and owners did. "
            f"Then brokers are killed while messages wait for mosquitto_sub: {'; '.join(one.text for one in rows)}.",
            (*real_lines(came), broker_line(rows)),
            (Trace("real", "Real nodes", out / "real" / "trace"),),
            tuple(came.wrong),
            {"real": came, "brokers": rows},
            DemoGlance(
                f"SIGKILL to the client's node, with {came.waiting:,} messages on their way",
                ((account.stored, "messages"), (account.missing, "lost"), (account.again, "sent again, marked")),
            ),
        )


def broker_line(rows: list[BrokerRow]) -> DemoVerdict:
    """The verdict of our row; those of other brokers are told, and decide nothing."""
    ours = rows[-1]
    figure = f"{ours.kept:,} of {ours.published:,} at the other node, {ours.rate:,.0f} publishes/s"
    return DemoVerdict("brokers", "what is acknowledged survives SIGKILL of the node", ours.is_whole, figure)


def real_lines(came: SessionRun) -> list[DemoVerdict]:
    """The verdicts of the files of the publisher and the client."""
    account = came.account
    arrived = f"{account.delivered:,} of {account.stored:,}; {came.waiting} waited when the node was killed"
    shows = came.waiting > 0 and account.delivered > 0
    return [
        DemoVerdict("real", "what is stored comes (own files)", shows and not account.missing, arrived),
        DemoVerdict(
            "real", "in order, and again only as a repetition (own files)",
            not (account.twice or account.late or account.foreign), f"{account.again} repetitions",
        ),
        DemoVerdict("real", "one connection has the session (own files)", came.taken == 1, f"{came.taken} taken over"),
    ]  # fmt: skip
