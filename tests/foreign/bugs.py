"""Mistakes to be put into the foreign implementations: bugs of existing systems, and states that are wrong only later.

Each is a piece of the text, and what takes its place; `LATER` are those whose output is right at first.
"""

PYTHON = {
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

JAVASCRIPT = {
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

WINDOW = {
    "one flip forgets": ("      if (this.age === FLIPS) this.forget(0);\n", "      this.forget(0);\n"),
    "a message does not keep its subject": (
        "    const since = this.since(first, end);\n    this.age = 0;\n",
        "    const since = this.since(first, end);\n",
    ),
    "unsubscribing forgets nothing": ("this.isSubscribed = false; this.forget(0);", "this.isSubscribed = false;"),
    "what is below a jump is taken for repeated": (
        "        this.other = last;\n        this.jumped = first;\n",
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
    "a loss is not capped": ("Number(smaller(lost, LOSS_MAX))", "Number(lost)"),
    "a stream that begins anew has lost what it may have": (
        "if (event.first !== 1 || before) return",
        "if (event.first !== 1 || !before) return",
    ),
}

LATER = {
    "a late copy of a grant installs a stream that was revoked",
    "the last report is lost and never repeated",
    "the lease is counted from the answer",
    "unsubscribing never times out",
    "the epoch of the leader is forgotten",
    "the session is told to finish again and again",
    "a lease that has ended is not begun again",
    "only the first registry is ever asked",
    "a final progress is forgotten with the next one",
    "the end of a stream is read as a double",
    "the next ping is counted from the last one",
    "one flip forgets",
    "a message does not keep its subject",
    "unsubscribing forgets nothing",
    "what is below a jump is taken for repeated",
    "publishers that were forgotten for others lost nothing",
    "of several publishers one alone keeps the subject",
}
