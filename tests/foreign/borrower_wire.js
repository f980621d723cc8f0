// A Borrower over the wire in JavaScript: nothing of gapless is imported; docs/wire.md is all that it knows.
//
//   node borrower_wire.js 127.0.0.1:7411 '{"ping_interval_ms": 1000, ...}' SEED LIFE
//
// Its session pretends to read. What a Borrower does stands in borrower.js.
'use strict';

const net = require('node:net');
const { Borrower } = require('./borrower.js');

const FRAME_MAX = 2 ** 20;
const REPORT = ['stream', 'grant', 'progress', 'finished', 'failed', 'in_hand', 'acked', 'reason'];
const FIELDS = {
  leader_wanted: ['borrower', 'group', 'filter'],
  ping: ['borrower', 'epoch', 'registration', 'n', 'reports'],
  update_progress: ['borrower', 'epoch', 'registration', ...REPORT],
  revoke_finished: ['borrower', 'epoch', 'registration', 'stream', 'grant'],
  disconnect: ['borrower', 'epoch', 'registration', 'reports'],
  leader_connect_response: ['borrower', 'leader', 'epoch', 'registration'],
  undeclared: ['borrower'],
  ping_response: ['borrower', 'epoch', 'registration', 'n'],
  grant: ['borrower', 'epoch', 'registration', 'stream', 'grant', 'progress', 'failed', 'most', 'relaxed', 'acked',
    'repeats'],
  revoke: ['borrower', 'epoch', 'registration', 'stream', 'grant'],
  revoked: ['borrower', 'epoch', 'registration', 'stream', 'grant'],
  invalidate: ['borrower', 'epoch', 'registration'],
};
const LEFT_OUT = { failed: 0, most: 0, relaxed: false, acked: [], repeats: 0 }; // at the end of a grant
const READ_ALL = { failed: 0, in_hand: false, acked: [], reason: '' }; // nothing is given back, and all is read in order

// MessagePack, as much of it as the wire uses.

function pack(value) {
  if (value === null) return Buffer.from([0xc0]);
  if (typeof value === 'boolean') return Buffer.from([value ? 0xc3 : 0xc2]);
  if (typeof value === 'number' && value < 128) return Buffer.from([value]);
  if (typeof value === 'number' || typeof value === 'bigint') {
    const bytes = Buffer.alloc(9, 0xcf);
    bytes.writeBigUInt64BE(BigInt(value), 1);
    return bytes;
  }
  if (Buffer.isBuffer(value)) return Buffer.concat([head(value.length, [0xc4, 0xc5, 0xc6]), value]);
  if (typeof value === 'string') {
    const text = Buffer.from(value);
    return Buffer.concat([text.length < 32 ? Buffer.from([0xa0 | text.length]) : head(text.length, [0xd9, 0xda, 0xdb]), text]);
  }
  const first = value.length < 16 ? Buffer.from([0x90 | value.length]) : head(value.length, [null, 0xdc, 0xdd]);
  return Buffer.concat([first, ...value.map(pack)]);
}

function head(size, [byte, short, long]) {
  if (size < 256 && byte !== null) return Buffer.from([byte, size]);
  const bytes = Buffer.alloc(size < 65536 ? 3 : 5, size < 65536 ? short : long);
  if (size < 65536) bytes.writeUInt16BE(size, 1);
  else bytes.writeUInt32BE(size, 1);
  return bytes;
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  take(size) {
    this.at += size;
    return this.bytes.subarray(this.at - size, this.at);
  }

  integer(size) {
    const value = BigInt(`0x${this.take(size).toString('hex')}`);
    return value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
  }

  value() {
    const code = this.integer(1);
    if (code < 0x80) return code;
    if (code >= 0x90 && code < 0xa0) return this.list(code & 15);
    if (code >= 0xa0 && code < 0xc0) return this.take(code & 31).toString();
    if (code === 0xc0) return null;
    if (code === 0xc2 || code === 0xc3) return code === 0xc3;
    if (code >= 0xc4 && code <= 0xc6) return this.take(this.integer(2 ** (code - 0xc4)));
    if (code >= 0xcc && code <= 0xcf) return this.integer(2 ** (code - 0xcc));
    if (code >= 0xd9 && code <= 0xdb) return this.take(this.integer(2 ** (code - 0xd9))).toString();
    if (code === 0xdc || code === 0xdd) return this.list(this.integer(code === 0xdc ? 2 : 4));
    throw new Error(`MessagePack that no message has: ${code}`);
  }

  list(size) {
    return Array.from({ length: size }, () => this.value());
  }
}

// A session that reads messages which are not there, and whose client comes and goes.

class PretendedReader {
  constructor() {
    this.streams = new Map();
    this.leavesAt = null;
  }

  tell(event) {
    if (event.type === 'install') this.streams.set(event.stream, { grant: event.grant, progress: event.progress, finishing: false });
    if (event.type === 'finish') this.streams.get(event.stream).finishing = true;
    if (event.type === 'uninstall') this.streams.delete(event.stream);
    if (event.type === 'destroyed') this.leavesAt = null;
  }

  read() {
    const [stream] = [...this.streams.keys()].sort(() => Math.random() - 0.5);
    if (stream === undefined || Math.random() < 0.5) return null;
    const held = this.streams.get(stream);
    held.progress += Math.floor(Math.random() * 3);
    const finished = held.finishing && !this.isSlow && Math.random() < 0.3;
    return { type: 'stream_progress', stream, grant: held.grant, progress: held.progress, finished, ...READ_ALL };
  }

  call() {
    if (this.leavesAt === null) {
      this.leavesAt = Date.now() + 200 + 2800 * Math.random();
      this.isSlow = Math.random() < 0.4;
    }
    if (Date.now() < this.leavesAt) return null;
    this.leavesAt = Infinity;
    return { type: ['on_unsubscribe', 'on_unsubscribe', 'on_disconnect', 'give_back'][Math.floor(4 * Math.random())] };
  }
}

class Node {
  constructor(socket, life, configuration) {
    Object.assign(this, { socket, life, configuration, count: 0, number: 0, timers: new Map(), buffer: Buffer.alloc(0) });
    this.reader = new PretendedReader();
    socket.on('data', (bytes) => this.hear(bytes));
    socket.on('close', () => process.exit(0));
    this.write(['gapless', 4, 'shared_subscriptions/consumer', life, Buffer.alloc(0), false, '']);
  }

  get now() {
    return Number(process.hrtime.bigint() / 1000n) * 1000;
  }

  write(value) {
    const body = pack(value);
    const size = Buffer.alloc(4);
    size.writeUInt32BE(body.length);
    this.socket.write(Buffer.concat([size, body]));
  }

  hear(bytes) {
    this.buffer = Buffer.concat([this.buffer, bytes]);
    while (this.buffer.length >= 4) {
      const size = this.buffer.readUInt32BE();
      if (size > FRAME_MAX) throw new Error('a frame that is too large');
      if (this.buffer.length < 4 + size) return;
      const frame = new Reader(this.buffer.subarray(4, 4 + size)).value();
      this.buffer = this.buffer.subarray(4 + size);
      if (frame[0] === 'gapless refusal') throw new Error(frame[1]);
      if (frame[0] === 'gapless') this.begin(0);
      else this.take(frame);
    }
  }

  take([, to, , [type, ...values]]) {
    if (to !== this.borrower.id) return;
    const fields = Object.fromEntries(values.map((value, place) => [FIELDS[type][place], value]));
    this.step({ event: { type, ...(type === 'grant' ? LEFT_OUT : {}), ...fields } });
  }

  begin(epoch) {
    this.count += 1;
    this.timers.forEach((timer) => clearTimeout(timer));
    this.timers.clear();
    const init = {
      id: `${this.life}/${this.count}`, group: 'g', filter: '#', registries: ['leader'], epoch, configuration: this.configuration,
    };
    this.borrower = new Borrower(init, this.now);
    this.step({ event: { type: 'start' } });
    if (this.count === 1) setInterval(() => this.live(), 20);
  }

  live() {
    [this.reader.read(), this.reader.call()].forEach((event) => event && this.step({ event }));
  }

  step(line) {
    const { borrower } = this;
    borrower.take({ ...line, now_ns: this.now });
    const { effects } = borrower;
    borrower.effects = [];
    effects.forEach((effect) => this.do(effect, borrower));
  }

  do(effect, borrower) {
    if (effect.effect === 'set_timer') this.setTimer(effect.timer, effect.deadline_ns);
    if (effect.effect === 'cancel_timer') clearTimeout(this.timers.get(effect.timer));
    if (effect.effect === 'send') this.send(borrower.id, effect.to, effect.message);
    if (effect.effect !== 'tell') return;
    this.reader.tell(effect.event);
    if (effect.event.type === 'destroyed') this.begin(effect.event.recreate ? effect.event.epoch : 0);
  }

  setTimer(timer, deadline) {
    clearTimeout(this.timers.get(timer));
    const fire = () => {
      if (this.now < deadline) this.setTimer(timer, deadline); // a timeout may come a little early
      else this.step({ timer });
    };
    this.timers.set(timer, setTimeout(fire, Math.max(0, Math.ceil((deadline - this.now) / 1e6))));
  }

  send(sender, to, message) {
    const fields = FIELDS[message.type].map((field) =>
      (field === 'reports' ? message.reports.map((report) => REPORT.map((one) => report[one])) : message[field]));
    this.number += 1;
    this.write([sender, to, this.number, [message.type, ...fields]]);
  }
}

const [address, configuration, life] = process.argv.slice(2);
const [host, port] = address.split(':');
const socket = net.connect(Number(port), host, () => new Node(socket, `plain-js~${life}`, JSON.parse(configuration)));
socket.setNoDelay(true);
