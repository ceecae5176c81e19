// Where a value stands between 0 and 1: few different values evenly, many by size, or by logarithm if they span a lot.

const WIDE = 50; // ratio of highest to lowest from which on a logarithm is used

export class Scale {
  constructor({ low, high, levels, names }) {
    this.levels = levels;
    this.names = names; // texts of the levels, or null
    this.log = !levels && low > 0 && high / low >= WIDE;
    this.low = this.log ? Math.log10(low) : low;
    this.high = this.log ? Math.log10(high) : high;
  }

  place(value) {
    if (this.levels) {
      const at = this.levels.indexOf(value);
      return at < 0 ? NaN : (at + 0.5) / this.levels.length;
    }
    const x = this.log ? Math.log10(value) : value;
    return this.high > this.low ? (x - this.low) / (this.high - this.low) : 0.5;
  }

  // the value at a place; for levels the nearest one
  at(place) {
    if (this.levels) {
      const last = this.levels.length - 1;
      return this.levels[Math.min(last, Math.max(0, Math.floor(place * (last + 1))))];
    }
    const x = this.low + place * (this.high - this.low);
    return this.log ? 10 ** x : x;
  }

  // the closed range of values between two places, open (null) where it reaches an end
  between(from, to) {
    const [a, b] = from < to ? [from, to] : [to, from];
    if (this.levels) {
      const inside = this.levels.filter((_, i, all) => (i + 0.5) / all.length >= a && (i + 0.5) / all.length <= b);
      const kept = inside.length ? inside : [this.at((a + b) / 2)];
      return [kept[0], kept[kept.length - 1]];
    }
    return [a <= 0 ? null : this.at(a), b >= 1 ? null : this.at(b)];
  }

  // the places where a range begins and ends; a level takes its whole share
  ends([low, high] = [null, null]) {
    const half = this.levels ? 0.5 / this.levels.length : 0;
    return [low === null ? 0 : this.place(low) - half, high === null ? 1 : this.place(high) + half];
  }

  ticks(most = 5) {
    if (this.levels) {
      const step = Math.ceil(this.levels.length / most);
      return this.levels.filter((_, i) => i % step === 0).map((value) => ({ value, place: this.place(value) }));
    }
    const values = this.log && this.high - this.low >= 2 ? decades(this.low, this.high, most) : this.even(most);
    return values.map((value) => ({ value, place: this.place(value) })).filter((t) => t.place >= 0 && t.place <= 1);
  }

  even(most) {
    const [low, high] = this.log ? [10 ** this.low, 10 ** this.high] : [this.low, this.high];
    const rough = (high - low) / most || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, i) =>
      Number(((first + i) * step).toPrecision(12)),
    );
  }
}

function decades(low, high, most) {
  const step = Math.max(1, Math.ceil((high - low) / most));
  const first = Math.ceil(low);
  return Array.from({ length: Math.floor((high - first) / step) + 1 }, (_, i) => 10 ** (first + i * step));
}
