// The window of a receiver in JavaScript: nothing of gapless is imported; docs/test_your_implementation.md is all that
// it knows, and the clauses SW-11 to SW-28, SW-78, SW-81 and SW-99.
'use strict';

const readline = require('node:readline');

const JUMP = 64n;
const LOSS_MAX = 32767n;
const FLIPS = 2;
const BASE_BITS = 35n;

function parse(text) {
  // Numbers of 64 bits do not fit into a double: long ones are kept as text, and read as BigInt.
  return JSON.parse(text.replace(/:(\d{16,})/g, ':"#$1"'), (key, value) =>
    typeof value === 'string' && /^#\d+$/.test(value) ? BigInt(value.slice(1)) : value);
}

const numberOf = (frame, base) => (BigInt(frame) << BASE_BITS) | BigInt(base);
const frameOf = (number) => number >> BASE_BITS;
const smaller = (one, two) => (one < two ? one : two);
const isJump = (last, number) => frameOf(number) !== frameOf(last) || number - last > JUMP;

class Window {
  constructor() {
    this.isSubscribed = false;
    this.forget(0);
  }

  forget(crowded) {
    Object.assign(this, { age: 0, last: 0n, other: 0n, jumped: 0n, crowded });
  }

  // What comes.

  take(event) {
    switch (event.type) {
      case 'subscribe': this.isSubscribed = true; return [];
      case 'unsubscribe': this.isSubscribed = false; this.forget(0); return [];
      case 'flip': this.flip(); return [];
      case 'touched': this.touch(); return [];
      case 'displace': this.displace(); return [];
      default: return this.judge(event);
    }
  }

  flip() {
    if (this.last) {
      this.age += 1;
      if (this.age === FLIPS) this.forget(0);
    } else if (this.crowded) {
      this.crowded -= 1;
    }
  }

  touch() {
    this.age = 0;
    if (this.crowded) this.crowded = FLIPS;
  }

  displace() {
    if (this.last) this.forget(FLIPS - this.age);
  }

  // What a message is.

  judge(event) {
    const first = numberOf(event.frame, event.first);
    const end = numberOf(event.frame, event.last);
    const before = this.numberBefore(event);
    if (!this.isSubscribed) return [told('not_subscribed', event)];
    if (!this.last) {
      const isUnknown = this.crowded > 0 && (event.first !== 1 || before !== 0n);
      this.move(0n, first, end);
      return [told('first', event, isUnknown ? 1n : 0n, isUnknown)];
    }
    const cut = this.cut(first, end);
    if (cut) {
      const base = Number(cut & ((1n << BASE_BITS) - 1n));
      return [...this.judge({ ...event, last: base - 1 }), ...this.judge({ ...event, first: base })];
    }
    const since = this.since(first, end);
    this.age = 0;
    if (end <= since || (this.last < this.jumped && this.jumped <= first && end <= this.other)) {
      return [told('repeat', event)];
    }
    this.move(since, first, end);
    if (first <= since) {
      const again = Number(since & ((1n << BASE_BITS) - 1n));
      return [told('repeat', { ...event, last: again }), told('next', { ...event, first: again + 1 })];
    }
    if (frameOf(first) === frameOf(since)) {
      const lost = first - since - 1n;
      return [lost ? told('skip', event, lost) : told('next', event)];
    }
    if (before === since) return [told('next', event)];
    if (before && frameOf(before) === frameOf(since) && before > since) return [told('skip', event, before - since)];
    if (event.first !== 1 || before) return [told('skip', event, 1n, true)];
    return [told('cycle', event)];
  }

  numberBefore(event) {
    const chain = BigInt(event.chain);
    const frame = frameOf(chain);
    const isNumber = frame > 0n && chain !== frame << BASE_BITS;
    return event.first === 1 && isNumber && frame < BigInt(event.frame) ? chain : 0n;
  }

  since(first, end) {
    const { last, other, jumped } = this;
    if (!other) return last;
    if (other < last) return other < first && end < jumped ? other : last;
    return other < first && !isJump(other, first) ? other : last;
  }

  // The first number that is of another run than those before it.
  cut(first, end) {
    const found = [this.jumped, this.other + 1n].filter((one) => this.other && first < one && one <= end);
    return found.length ? found.reduce(smaller) : 0n;
  }

  move(since, first, end) {
    const { last } = this;
    this.crowded = 0;
    if (last && since === last) {
      if (isJump(last, first)) {
        this.other = last;
        this.jumped = first;
      }
    } else if (last) {
      this.other = last;
    }
    this.last = end;
  }
}

function told(verdict, { frame, first, last }, lost = 0n, unknown = false) {
  const event = { type: 'judged', verdict, frame, first, last, lost: Number(smaller(lost, LOSS_MAX)), unknown };
  return { effect: 'tell', event };
}

let window = null;
readline.createInterface({ input: process.stdin }).on('line', (text) => {
  const line = parse(text);
  if (line.init) window = new Window();
  const effects = line.event ? window.take(line.event) : [];
  process.stdout.write(`${JSON.stringify({ effects, n: line.n })}\n`);
});
