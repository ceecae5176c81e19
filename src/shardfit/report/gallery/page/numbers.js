// Numbers as people read them.

export const whole = (n) => n.toLocaleString("en-GB");

export function short(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e6) return String(x);
  if (size >= 1e6 || size < 1e-3)
    return x
      .toExponential(digits - 2)
      .replace(/\.?0+e/, "e")
      .replace("e+", "e");
  return String(Number(x.toPrecision(digits)));
}

// with a fixed number of digits, so that columns line up
export function even(x, digits = 4) {
  if (Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return x.toExponential(digits - 2);
  return x.toFixed(Math.max(0, digits - 1 - Math.max(0, Math.floor(Math.log10(size || 1)))));
}

export function duration(seconds) {
  if (seconds < 1) return "under a second";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}
