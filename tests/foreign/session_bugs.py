"""Mistakes to be put into the foreign owner of a session: bugs of existing brokers, and states that are wrong later.

Each is the start in which it shows, a file, a piece of its text, and what takes its place; `LATER` are those whose
output is right at first.
"""

BUGS = {
    "a message that is sent again is not marked as a repetition": (
        "a session without writers that is taken over",
        "session_state.py",
        'self.publish(one["packet"], one["queued"], True, self.loaded)',
        'self.publish(one["packet"], one["queued"], False, self.loaded)',
    ),
    "a packet that was released is not released again after a reconnect": (
        "exactly once",
        "session_state.py",
        '                self.publish(one["packet"], one["queued"], True, self.loaded)\n            else:\n',
        '                self.publish(one["packet"], one["queued"], True, self.loaded)\n'
        '            elif one["status"] == "received":\n',
    ),
    "a completed packet is never free": (
        "exactly once",
        "session_state.py",
        'if step in (("puback", "sent", 1), ("pubcomp", "released", 2)):',
        'if step == ("puback", "sent", 1):',
    ),
    "a packet that has ended is not in the commit": (
        "exactly once",
        "session_state.py",
        '"ended": sorted(self.ended),',
        '"ended": [],',
    ),
    "packet ids are given again": (
        "exactly once",
        "session_state.py",
        '                state["places"] += 1\n',
        "",
    ),
    "rows behind the marker are taken from the database, too": (
        "messages astray for a slow client",
        "session_writers.py",
        ' for row in one["rows"] if row["number"] < flow.k)',
        ' for row in one["rows"])',
    ),
    "a message that was dropped before the marker is forgotten": (
        "messages astray",
        "session_writers.py",
        '            flow.heard = max(flow.heard, number)\n        elif flow.state == "done":',
        '            pass\n        elif flow.state == "done":',
    ),
    "what was kept behind an earlier marker is kept": (
        "a path that breaks",
        "session_writers.py",
        "        self.seen, self.buffer = False, []\n",
        "        self.seen = False\n",
    ),
    "a writer that is heard while it is fenced counts as gone": (
        "a writer that dies and comes back",
        "session_writers.py",
        '            flow.gone = False\n        elif flow and flow.state == "done":\n',
        '            pass\n        elif flow and flow.state == "done":\n',
    ),
    "an owner that has lost its claim is handed the session": (
        "owners that come after",
        "session.py",
        '            self.set_timer("orphan", "orphan")\n',
        '            self.set_timer("orphan", "orphan")\n            token = self.claim\n',
    ),
}

LATER = {
    "a completed packet is never free",
    "a packet that has ended is not in the commit",
    "packet ids are given again",
    "a message that was dropped before the marker is forgotten",
    "what was kept behind an earlier marker is kept",
    "a writer that is heard while it is fenced counts as gone",
}
