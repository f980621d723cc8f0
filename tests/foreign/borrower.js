// A Borrower in JavaScript: nothing of gapless is imported; docs/test_your_implementation.md is all that it knows.
'use strict';

const readline = require('node:readline');

const MS = 1_000_000;
const END_OF_STREAM = 9223372036854775807n; // JSON numbers are read as BigInt where they are too large for a double

function parse(text) {
  // 2^63 - 1 does not fit into a double: it is kept as text on the way in, and written as a number again.
  return JSON.parse(text.replace(/([:[,])(\d{16,})/g, '$1"#$2"'), (key, value) =>
    typeof value === 'string' && /^#\d+$/.test(value) ? BigInt(value.slice(1)) : value);
}

function print(value) {
  const text = JSON.stringify(value, (key, one) => (typeof one === 'bigint' ? `#${one}` : one));
  return text.replace(/"#(\d+)"/g, '$1');
}

const isHigher = (one, two) => one[0] > two[0] || (one[0] === two[0] && one[1] > two[1]);
const isEqual = (one, two) => one[0] === two[0] && one[1] === two[1];

class Borrower {
  constructor(init, now) {
    Object.assign(this, {
      id: init.id, group: init.group, filter: init.filter, registries: init.registries,
      times: init.configuration, epoch: init.epoch, now, effects: [], state: 'connecting', turn: 0,
      leader: null, pair: null, ping: 0, pingAt: 0, isOpen: false, isLeased: false,
      streams: new Map(), seen: new Map(), dirty: new Set(), sent: new Set(),
    });
    this.setTimer('retry', this.times.find_leader_ms);
  }

  // What it does.

  setTimer(timer, ms, since = this.now, authority = false) {
    this.effects.push({ effect: 'set_timer', timer, deadline_ns: since + ms * MS, authority });
  }

  cancelTimer(timer) {
    this.effects.push({ effect: 'cancel_timer', timer });
  }

  send(type, fields, to = this.leader) {
    const pair = this.pair ? { epoch: this.pair[0], registration: this.pair[1] } : {};
    this.effects.push({ effect: 'send', to, message: { type, borrower: this.id, ...pair, ...fields } });
  }

  tell(type, fields) {
    this.effects.push({ effect: 'tell', event: { type, ...fields } });
  }

  findLeader() {
    const registry = this.registries[this.turn];
    this.turn = (this.turn + 1) % this.registries.length;
    this.send('leader_wanted', { group: this.group, filter: this.filter }, registry);
  }

  report(stream) {
    const { isFinishing, ...report } = this.streams.get(stream);
    return { stream, ...report };
  }

  sendPing() {
    this.ping += 1;
    this.pingAt = this.now;
    this.isOpen = true;
    this.dirty.forEach((stream) => this.sent.add(stream));
    this.dirty.clear();
    this.send('ping', { n: this.ping, reports: [...this.sent].map((stream) => this.report(stream)) });
    this.setTimer('no answer', this.times.ping_timeout_ms);
  }

  sendProgress(stream) {
    this.send('update_progress', this.report(stream));
  }

  install({ stream, grant, progress, failed, most, relaxed, acked, repeats }) {
    const said = { grant, progress, failed, acked };
    this.streams.set(stream, { ...said, finished: false, in_hand: false, reason: '', isFinishing: false });
    this.dirty.add(stream);
    this.tell('install', { owner: this.id, stream, ...said, most, relaxed, repeats });
  }

  finish(stream) {
    const held = this.streams.get(stream);
    if (held.isFinishing) return;
    held.isFinishing = true;
    this.dirty.add(stream);
    this.tell('finish', { owner: this.id, stream, grant: held.grant });
  }

  uninstall(stream) {
    const { grant } = this.streams.get(stream);
    this.streams.delete(stream);
    this.dirty.delete(stream);
    this.sent.delete(stream);
    this.tell('uninstall', { owner: this.id, stream, grant });
  }

  end(recreate, reports = []) {
    [...this.streams.keys()].forEach((stream) => this.uninstall(stream));
    this.tell('destroyed', { borrower: this.id, recreate, epoch: this.epoch, reports });
    this.effects.push({ effect: 'stop' });
  }

  beginAnew(epoch) {
    this.epoch = Math.max(this.epoch, epoch);
    this.end(true);
  }

  leave(recreate = false) {
    const reports = [...this.streams.keys()].map((stream) => this.report(stream));
    this.send('disconnect', { reports });
    this.end(recreate, reports);
  }

  isFinished() {
    return [...this.streams.values()].every((held) => held.finished);
  }

  // What it is told.

  take(line) {
    this.now = line.now_ns;
    if (line.timer !== undefined) this.takeTimer(line.timer);
    else if (line.event.epoch !== undefined) this.takePaired(line.event);
    else this.takeCall(line.event);
  }

  takeTimer(timer) {
    if (timer === 'retry' && this.state === 'connecting') {
      this.findLeader();
      this.setTimer('retry', this.times.find_leader_ms);
    } else if (timer === 'next ping' && this.state !== 'connecting') {
      this.sendPing();
    } else if (timer === 'no answer' && this.isOpen) {
      if (this.state === 'connected') this.beginAnew(0);
      else this.leave();
    } else if (timer === 'lease' && this.state === 'connected' && this.isLeased) {
      this.isLeased = false;
      this.tell('lease_ended', { owner: this.id });
    } else if (timer === 'leave' && this.state === 'unsubscribing') {
      this.leave();
    }
  }

  takePaired(event) {
    const pair = [event.epoch, event.registration];
    if (this.state === 'connecting') {
      if (event.type === 'invalidate') this.beginAnew(event.epoch);
      if (event.type === 'leader_connect_response' && event.epoch >= this.epoch) this.connect(event, pair);
    } else if (event.type === 'invalidate') {
      if (isHigher(this.pair, pair)) return;
      if (this.state === 'connected') this.beginAnew(event.epoch);
      else this.end(false);
    } else if (isHigher(pair, this.pair)) {
      if (this.state === 'connected') this.beginAnew(event.epoch);
    } else if (isEqual(pair, this.pair)) {
      if (event.type === 'ping_response') this.takeAnswer(event);
      if (event.type === 'grant') this.takeGrant(event);
      if (event.type === 'revoke') this.takeRevoke(event);
      if (event.type === 'revoked') this.takeRevoked(event);
    }
  }

  connect(event, pair) {
    Object.assign(this, { state: 'connected', leader: event.leader, pair, epoch: event.epoch });
    this.cancelTimer('retry');
    this.sendPing();
  }

  takeAnswer(event) {
    if (!this.isOpen || event.n !== this.ping) return;
    this.isOpen = false;
    this.sent.clear();
    this.cancelTimer('no answer');
    this.setTimer('next ping', this.times.ping_interval_ms);
    if (this.state !== 'connected') return;
    this.setTimer('lease', this.times.ping_interval_ms + this.times.ping_timeout_ms, this.pingAt, true);
    if (!this.isLeased) this.tell('lease_began', { owner: this.id });
    this.isLeased = true;
  }

  takeGrant(event) {
    if (this.state !== 'connected') return;
    const { stream, grant } = event;
    const held = this.streams.get(stream);
    if (grant > (this.seen.get(stream) ?? 0)) {
      if (held) this.uninstall(stream);
      this.seen.set(stream, grant);
      this.install(event);
      this.sendProgress(stream);
    } else if (held && held.grant === grant) {
      this.sendProgress(stream);
    }
  }

  takeRevoke(event) {
    if (this.state !== 'connected') return;
    const held = this.streams.get(event.stream);
    if (held && held.grant === event.grant) {
      this.finish(event.stream);
      this.sendProgress(event.stream);
    } else {
      this.forget(event);
    }
  }

  takeRevoked(event) {
    const held = this.streams.get(event.stream);
    this.forget(event);
    const isGone = held && !this.streams.has(event.stream);
    if (this.state === 'unsubscribing' && isGone && !held.finished && this.isFinished()) this.leave();
  }

  forget({ stream, grant }) {
    const held = this.streams.get(stream);
    if (held && grant >= held.grant) this.uninstall(stream);
    this.seen.set(stream, Math.max(grant, this.seen.get(stream) ?? 0));
    this.send('revoke_finished', { stream, grant });
  }

  takeCall(event) {
    if (event.type === 'start' && this.state === 'connecting') this.findLeader();
    if (event.type === 'stream_progress' && this.state !== 'connecting') this.takeProgress(event);
    if (event.type === 'on_unsubscribe') this.unsubscribe();
    if (event.type === 'on_disconnect') this.goOr(() => this.leave(), false);
    if (event.type === 'give_back' && this.state !== 'unsubscribing') this.goOr(() => this.leave(true), true);
  }

  goOr(leave, recreate) {
    if (this.state === 'connecting') this.end(recreate);
    else leave();
  }

  unsubscribe() {
    if (this.state === 'connecting') this.end(false);
    if (this.state !== 'connected') return;
    if (this.isFinished()) {
      this.leave();
      return;
    }
    this.state = 'unsubscribing';
    this.cancelTimer('lease');
    this.setTimer('leave', this.times.unsubscribe_timeout_ms);
    [...this.streams.keys()].forEach((stream) => this.finish(stream));
  }

  takeProgress({ stream, grant, progress, finished, failed, in_hand, acked, reason }) {
    const held = this.streams.get(stream);
    if (!held || held.grant !== grant || progress < held.progress) return;
    const wasFinished = held.finished;
    Object.assign(held, { progress, failed, in_hand, acked, reason });
    held.finished = held.finished || finished || progress === END_OF_STREAM;
    this.dirty.add(stream);
    this.sendProgress(stream);
    if (this.state === 'unsubscribing' && !wasFinished && this.isFinished()) this.leave();
  }
}

module.exports = { Borrower };

if (require.main === module) {
  let borrower = null;
  readline.createInterface({ input: process.stdin }).on('line', (text) => {
    const line = parse(text);
    if (line.init) borrower = new Borrower(line.init, line.now_ns);
    else borrower.take(line);
    process.stdout.write(`${print({ effects: borrower.effects, n: line.n })}\n`);
    borrower.effects = [];
  });
}
