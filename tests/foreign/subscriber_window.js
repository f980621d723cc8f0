// The window of a receiver in JavaScript: nothing of gapless is imported; docs/test_your_implementation.md is all that
// it knows, and the clauses SW-11 to SW-28, SW-78, SW-81, SW-99 and SW-100.
'use strict';

const readline = require('node:readline');

const GAPS_MAX = 4;
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

class Window {
  constructor() {
    this.isSubscribed = false;
    this.since = 2 ** 29;
    this.forget(0);
  }

  forget(crowded) {
    Object.assign(this, { age: 0, last: 0n, gaps: [], alone: 0n, crowded });
  }

  // What comes.

  take(event) {
    switch (event.type) {
      case 'subscribe':
        if (!this.isSubscribed) Object.assign(this, { isSubscribed: true, since: event.since });
        return [];
      case 'unsubscribe': this.isSubscribed = false; this.forget(0); return [];
      case 'flip': this.flip(event.floor); return [];
      case 'touched': this.touch(); return [];
      case 'displace': this.displace(); return [];
      default: return this.judge(event);
    }
  }

  flip(floor) {
    this.since = Math.max(this.since, floor);
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
      const goesOn = event.first !== 1 || before !== 0n;
      const isUnknown = goesOn && (this.crowded > 0 || frameOf(before || first) >= BigInt(this.since));
      Object.assign(this, { last: end, crowded: 0 });
      return [told('first', event, isUnknown ? 1n : 0n, isUnknown)];
    }
    const next = this.gaps.find(([, above]) => first < above && above <= end);
    if (next) {
      const base = Number(next[1] & ((1n << BASE_BITS) - 1n));
      return [...this.judge({ ...event, last: base - 1 }), ...this.judge({ ...event, first: base })];
    }
    const own = this.lastBefore(first);
    const since = this.lastBefore(before || first);
    this.age = 0;
    if (end <= own) return [told('repeat', event)];
    this.move(first, end);
    if (first <= own) {
      const again = Number(own & ((1n << BASE_BITS) - 1n));
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

  // The last number of the run at or below this one.
  lastBefore(number) {
    const gap = this.gaps.find(([, above]) => number < above);
    return gap ? gap[0] : this.last;
  }

  // What is known when these have come: a gap is [the last number below it, the first above it].
  move(first, end) {
    let at = this.gaps.findIndex(([, above]) => first < above);
    if (at < 0) at = this.gaps.length;
    const isTop = at === this.gaps.length;
    const below = isTop ? this.last : this.gaps[at][0];
    const isNext = first <= below + 1n;
    if (!isNext && first < end) {
      this.move(first, first);
      this.move(first + 1n, end);
    } else if (isTop && isNext) {
      this.last = end;
    } else if (isTop) {
      const more = [...this.gaps, [this.last, first]];
      const isHeld = this.alone === this.last && at > 0 && this.gaps[at - 1][1] < this.last;
      const kept = this.settle(more, first);
      if (!isHeld && kept.length <= GAPS_MAX) this.gaps = kept;
      this.last = this.alone = end;
    } else {
      this.fill(at, isNext, first, end);
    }
  }

  fill(at, isNext, first, end) {
    const top = this.gaps[this.gaps.length - 1];
    if (isNext && this.alone === this.last) top[1] = this.last;
    const [below, above] = this.gaps[at];
    const parts = isNext ? [] : [[below, first]];
    if (end + 1n < above) parts.push([end, above]);
    else if (above === this.alone) this.alone = 0n;
    this.gaps.splice(at, 1, ...parts);
    this.gaps = this.settle(this.gaps, first);
    if (this.gaps.length <= GAPS_MAX) return;
    const [under, over] = this.gaps[this.gaps.length - 1];
    if (this.last === this.alone || this.last === over) {
      this.gaps.pop();
      this.last = under;
      this.alone = this.gaps[this.gaps.length - 1][1];
    } else {
      this.gaps.shift();
    }
  }

  // Without the gaps below the lowest run, above another and below this number, in which two came in sequence.
  settle(gaps, number) {
    if (gaps.length <= GAPS_MAX) return gaps;
    const at = gaps.findIndex(([below], place) => place > 0 && gaps[place - 1][1] < below && below < number);
    return at < 0 ? gaps : gaps.slice(at);
  }
}

function told(verdict, { frame, first, last }, lost = 0n, unknown = false) {
  const most = lost > LOSS_MAX ? LOSS_MAX : lost;
  const event = { type: 'judged', verdict, frame, first, last, lost: Number(most), unknown: unknown || lost > most };
  return { effect: 'tell', event };
}

let window = null;
readline.createInterface({ input: process.stdin }).on('line', (text) => {
  const line = parse(text);
  if (line.init) window = new Window();
  const effects = line.event ? window.take(line.event) : [];
  process.stdout.write(`${JSON.stringify({ effects, n: line.n })}\n`);
});
