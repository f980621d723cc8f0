"""Programs that others could have written, and mistakes to be put into them: `make test` and `make soak` judge them.

They are in `tests/foreign`, in plain Python and JavaScript, and import nothing of gapless.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from planted_node import replace_once

from statemachines.testing.conformance.campaign import Campaign
from statemachines.testing.conformance.child_process import ChildProcess
from statemachines.testing.conformance.role import role_of

HERE = Path(__file__).parent / "foreign"
LANGUAGES = {".py": sys.executable, ".js": "node"}


def plant(folder: Path, files: tuple[str, ...], right: str, wrong: str) -> None:
    """Copy all programs into `folder`, with `wrong` in the place of `right`, which one of `files` has, once."""
    shutil.copytree(HERE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("test_*", "__pycache__"))
    (file,) = [one for one in files if right in (HERE / one).read_text()]
    (folder / file).write_text(replace_once((HERE / file).read_text(), right, wrong))


class ForeignProgram(NamedTuple):
    """A program of a role: its files, the first of which is run, and mistakes: what is right, what takes its place, and
    the start in which it shows (all of them where none is named).  `make test` draws runs of the starts `quick` (none:
    all), and leaves the mistakes `slow` to `make soak`.  A run that shows a mistake has at most `longest` inputs."""

    role: str
    files: tuple[str, ...]
    mistakes: dict[str, tuple[str, ...]]
    quick: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    longest: int = 8

    @property
    def file(self) -> str:
        """The file that is run."""
        return self.files[0]

    def plant(self, name: str, folder: Path) -> Campaign:
        """The campaign of the program with a mistake in it."""
        right, wrong, *starts = self.mistakes[name]
        plant(folder, self.files, right, wrong)
        return self.campaign(tuple(starts), folder)

    def campaign(self, starts: tuple[str, ...] = (), folder: Path = HERE) -> Campaign:
        """The campaign in these starts (none: all)."""
        role, path = role_of(self.role), folder / self.file
        if starts:
            role = replace(role, starts=tuple(one for one in role.starts if one.name in starts))
        return Campaign(role, lambda: ChildProcess((LANGUAGES[path.suffix], str(path))))


BORROWER = {
    "a late copy of a grant installs a stream that was revoked": (
        "        self.highest[name] = max(self.highest.get(name, 0), grant)\n",
        "",
    ),
    "a late timer asks for a leader that is known": (
        '    def on_timer_find(self):\n        if self.state == "connecting":\n',
        "    def on_timer_find(self):\n        if True:\n",
    ),
    "it is created again while it is unsubscribing": (
        "                else:\n                    self.end(False)\n",
        "                else:\n                    self.end(True)\n",
    ),
    "the last report is lost and never repeated": (
        '        self.changed(event["stream"])\n        self.send_progress(event["stream"])\n',
        '        self.send_progress(event["stream"])\n',
    ),
    "progress is not compared": (
        '        if event["progress"] < held.progress:\n            return\n',
        "",
    ),
    "the lease is counted from the answer": ("lease, self.sent_at)", "lease)"),
    "unsubscribing never times out": (
        '            self.set_timer("leave", self.times["unsubscribe_timeout_ms"])\n',
        "",
    ),
    "the epoch of the leader is forgotten": (
        '        self.pair = pair\n        self.epoch = event["epoch"]\n',
        "        self.pair = pair\n",
    ),
    "the session is told to finish again and again": (
        "        self.streams[name].finishing = True\n",
        "",
    ),
    "the end of a lease is a timer like others": ('            effect["authority"] = True\n', "            pass\n"),
    "a grant has 32 bits": ('self.grant = grant["grant"]', 'self.grant = grant["grant"] & 0xFFFFFFFF'),
    "a fifth stream finds no place": (
        "        if grant > self.highest.get(name, 0):\n",
        "        if grant > self.highest.get(name, 0) and len(self.streams) < 4:\n",
    ),
    "a lease that has ended is not begun again": (
        "            self.leased = False\n",
        "",
    ),
}

BORROWER_JS = {
    "what was said to an earlier registration is accepted": (
        "one[0] === two[0] && one[1] === two[1]",
        "one[0] === two[0]",
    ),
    "a duplicate connect response is not handled": (
        "    } else if (isEqual(pair, this.pair)) {\n",
        "    } else if (isEqual(pair, this.pair)) {\n"
        "      if (event.type === 'leader_connect_response') this.connect(event, pair);\n",
    ),
    "only the first registry is ever asked": (
        "    this.turn = (this.turn + 1) % this.registries.length;\n",
        "",
    ),
    "a final progress is forgotten with the next one": (
        "held.finished = held.finished || finished",
        "held.finished = finished",
    ),
    "a revoke is confirmed before the stream is dropped": (
        "    if (held && grant >= held.grant) this.uninstall(stream);\n"
        "    this.seen.set(stream, Math.max(grant, this.seen.get(stream) ?? 0));\n"
        "    this.send('revoke_finished', { stream, grant });\n",
        "    this.seen.set(stream, Math.max(grant, this.seen.get(stream) ?? 0));\n"
        "    this.send('revoke_finished', { stream, grant });\n"
        "    if (held && grant >= held.grant) this.uninstall(stream);\n",
    ),
    "a revoked stream is not marked unsubscribed": (
        "      this.finish(event.stream);\n      this.sendProgress(event.stream);\n",
        "      this.sendProgress(event.stream);\n",
    ),
    "any answer is taken for that to the last ping": ("!this.isOpen || event.n !== this.ping", "!this.isOpen"),
    "the end of a stream is read as a double": (
        "progress === END_OF_STREAM",
        "progress === 2 ** 63 - 1",
    ),
    "a leader of an epoch that is over is adopted": (" && event.epoch >= this.epoch", ""),
    "the next ping is counted from the last one": (
        "this.setTimer('next ping', this.times.ping_interval_ms)",
        "this.setTimer('next ping', this.times.ping_interval_ms, this.pingAt)",
    ),
}

RECEIVER = {
    "one flip forgets": ("      if (this.age === FLIPS) this.forget(0);\n", "      this.forget(0);\n"),
    "a message does not keep its subject": (
        "    const since = this.lastBefore(before || first);\n    this.age = 0;\n",
        "    const since = this.lastBefore(before || first);\n",
    ),
    "unsubscribing forgets nothing": ("this.isSubscribed = false; this.forget(0);", "this.isSubscribed = false;"),
    "what is below a jump is taken for repeated": (
        "if (!isHeld && kept.length <= GAPS_MAX) this.gaps = kept;",
        "",
    ),
    "publishers that were forgotten for others lost nothing": (
        "this.forget(FLIPS - this.age)",
        "this.forget(0)",
    ),
    "of several publishers one alone keeps the subject": (
        "    this.age = 0;\n    if (this.crowded)",
        "    if (this.crowded)",
    ),
    "numbers are read as doubles": ("BigInt(value.slice(1))", "BigInt(Number(value.slice(1)))"),
    "the first missing message is not counted": (
        "const lost = first - since - 1n;",
        "const lost = first - since - 2n;",
    ),
    "a loss above the cap is known": ("unknown: unknown || lost > most", "unknown"),
    "the beginning of a stream is not missed": ("frameOf(before || first) >= BigInt(this.since)", "false"),
    "a stream that begins anew has lost what it may have": (
        "if (event.first !== 1 || before) return",
        "if (event.first !== 1 || !before) return",
    ),
}

SESSION = {
    "a message that is sent again is not marked as a repetition": (
        'self.publish(one["packet"], one["queued"], True, self.loaded)',
        'self.publish(one["packet"], one["queued"], False, self.loaded)',
        "a session without writers that is taken over",
    ),
    "a packet that was released is not released again after a reconnect": (
        '                self.publish(one["packet"], one["queued"], True, self.loaded)\n            else:\n',
        '                self.publish(one["packet"], one["queued"], True, self.loaded)\n'
        '            elif one["status"] == "received":\n',
        "exactly once",
    ),
    "a completed packet is never free": (
        'if step in (("puback", "sent", 1), ("pubcomp", "released", 2)):',
        'if step == ("puback", "sent", 1):',
        "exactly once",
    ),
    "a packet that has ended is not in the commit": (
        '"ended": sorted(self.ended),',
        '"ended": [],',
        "exactly once",
    ),
    "packet ids are given again": (
        '                state["places"] += 1\n',
        "",
        "exactly once",
    ),
    "rows behind the marker are taken from the database, too": (
        'event["complete_ns"], flow.k)',
        'event["complete_ns"])',
        "messages astray for a slow client",
    ),
    "a message that was dropped before the marker is forgotten": (
        '            flow.heard = max(flow.heard, number)\n        elif flow.state == "done":',
        '            pass\n        elif flow.state == "done":',
        "messages astray",
    ),
    "what was kept behind an earlier marker is kept": (
        "        self.seen, self.buffer = False, []\n",
        "        self.seen = False\n",
        "a path that breaks",
    ),
    "a writer that is heard while it is fenced counts as gone": (
        '            flow.gone = False\n        elif flow and flow.state == "done":\n',
        '            pass\n        elif flow and flow.state == "done":\n',
        "a writer that dies and comes back",
    ),
    "an owner that has lost its claim is handed the session": (
        '            self.set_timer("orphan", "orphan")\n',
        '            self.set_timer("orphan", "orphan")\n            token = self.claim\n',
        "owners that come after",
    ),
    "rows of several writers are taken in the order of their names": (
        '(flow.blocked[0][2]["stored_ns"], flow.writer)',
        "flow.writer",
        "writers whose rows are merged",
    ),
    "a row is taken before older ones of a writer that is not known": (
        "return self.known < bound or any(",
        "return any(",
        "writers whose rows are merged",
    ),
}

WRITER = {
    "a marker of an epoch that has ended is shown": (
        ', self.shown_at = event["epoch"], 0, None',
        ' = event["epoch"], 0',
    ),
    "numbers go on under the next epoch": (
        'self.epoch, self.last, self.shown_at = event["epoch"], 0, None',
        'self.epoch, self.shown_at = event["epoch"], None',
    ),
    "who published what another node has stored is not answered": (
        '        self.answer([hand for number, hand in numbered if number in event["numbers"]])\n',
        "",
    ),
    "an owner that is known is not believed again": ('event["token"] >= self.token', 'event["token"] > self.token'),
    "a marker is sent live before the rows that wait": (
        "            self.jobs.append(event)\n\n",
        "            self.jobs.insert(0, event)\n\n",
    ),
}

PUBLISHER_WINDOW = {
    "a convergence is ignored": ("frame + 1, converged)", "frame + 1)"),
    "two streams have the same frame": (
        'max(frame_of(event["t_ns"]), frame + 1,',
        'max(frame_of(event["t_ns"]), frame,',
    ),
    "a flip forgets at once": ("self.flips == 2", "self.flips == 1"),
    "a message does not keep its subject": ("        self.flips = 0\n        if", "        if"),
    "a stream begins before its frame": ('max(event["t_ns"], frame * FRAME_NS)', 'event["t_ns"]'),
}

PUBLISHER = {
    "heartbeats do not come round": ("(self.next - 1) % self.round", "self.next - 1"),
    "a periodic heartbeat is sent once": (
        '        if self.beats == "periodic":\n            self.set_heartbeat()\n\n\n',
        "\n\n",
    ),
    "each sample puts a sporadic heartbeat off": (" and not self.is_due:", ":"),
    "a heartbeat is sent before any sample": ("        if self.next:\n", "        if True:\n"),
}

CACHE = {
    "a full queue forgets the newest": ("sorted(queue)[: -self.history]", "sorted(queue)[self.history :]"),
    "a range that ends before it begins is answered": ("and self.is_backwards(low, high)", "and False"),
    "numbers are not read as the nearest": ("if not queue or self.width == 64:", "if True:"),
    "a queue that is heard is let go": ("            self.heard.add(place)\n", "            pass\n"),
    "a sample without a time is of any time": ("(begin or 1)", "(begin or 0)", "times"),
    "a sample that comes twice has the later time": (
        'queue.setdefault(number, event["t_ns"])',
        'queue[number] = event["t_ns"]',
        "times",
    ),
}

QUEUE_WRITER = {
    "the data is written before the mark": (
        "(size, checksum_of(first, size, data), *marks_of(first))",
        "(size, checksum_of(first, size, data), *marks_of(first)[::-1])",
    ),
    "a cursor that was lost is not noticed": (
        "        if not (yield from self.is_ours()):\n"
        '                return {"outcome": "fenced"}\n            is_moved',
        "        is_moved",
    ),
    "a reader that is a lap behind is passed": ("end <= position + capacity", "first <= position + capacity"),
    "messages of a dead reader are counted once more": ('"lost", lost, lost + messages', '"lost", lost, lost + 1'),
    "a stamp is rounded down": ("-(-time_ns // TICK_NS)", "time_ns // TICK_NS"),
}

QUEUE_READER = {
    "a checksum that is wrong is not noticed": ("if checksum_of(first, size, data) != checksum:", "if False:"),
    "a block begins where half a mark is": ("enumerate(marks_of(position), 2)", "enumerate(marks_of(position)[:1], 2)"),
    "a writer behind the write head is not waited for": ("position >= self.write_head)", "True)"),
    "a slice has no end": ("                self.has_looked = True\n", ""),
    "a slot that has another process lives": ("% 4_096 != word >> 43 & 4_095", "== 0"),
}

SUBSCRIBER = {
    "a doubt never ends": ("            self.doubt = -1\n", "            pass\n", "a doubt that ends"),
    "how long answers take is not learned": ("self.learn(max(now - sent", "max(0, (now - sent", "silence"),
    "what nobody answers is asked for once": ("self.send(one, 2)", "self.send(one, 1)", "silence"),
    "numbers of queries begin anew": ("max(self.queries, source.query_n)", "0", "the past"),
    "a source that lives is forgotten": ("not self.is_heard and not self.is_alive", "not self.is_heard", "tokens"),
    "a hole is asked for from its beginning alone": ("if is_vain and", "if False and", "windows"),
    "an answer convicts what it did not reach": (
        "min(first + brought, one.last + 1)",
        "one.last + 1",
        "a hole",
    ),
    "queries that are open do not share a hole": ("min(last, above - 1)", "last", "windows"),
}


FOREIGN = (
    ForeignProgram("shared_subscriptions/borrower", ("borrower.py",), BORROWER),
    ForeignProgram("shared_subscriptions/borrower", ("borrower.js",), BORROWER_JS, slow=(*BORROWER_JS,)[3:]),
    ForeignProgram(
        "persistent_sessions/session",
        ("session.py", "session_state.py", "session_writers.py"),
        SESSION,
        quick=("a writer that dies and comes back", "exactly once", "writers whose rows are merged"),
        slow=(
            "rows behind the marker are taken from the database, too",
            "a writer that is heard while it is fenced counts as gone",
        ),
        longest=20,
    ),
    ForeignProgram("persistent_sessions/writer", ("writer.py",), WRITER, longest=12),
    ForeignProgram("sequence_windows/subscriber_window", ("subscriber_window.js",), RECEIVER),
    ForeignProgram("sequence_windows/publisher_window", ("publisher_window.py",), PUBLISHER_WINDOW),
    ForeignProgram("missed_samples/publisher", ("publisher.py",), PUBLISHER),
    ForeignProgram("missed_samples/reliability_cache", ("reliability_cache.py",), CACHE),
    ForeignProgram("missed_samples/subscriber", ("subscriber.py", "sample_source.py"), SUBSCRIBER, longest=12),
    ForeignProgram("cursor_recovery/writer", ("queue_writer.py", "queue_operation.py"), QUEUE_WRITER, longest=40),
    ForeignProgram("cursor_recovery/reader", ("queue_reader.py", "queue_operation.py"), QUEUE_READER, longest=40),
)
