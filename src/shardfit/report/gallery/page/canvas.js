// What the drawings share: sharp canvases, the colours of the style sheet, the colour ramp.

import { el } from "./dom.js";
import { short } from "./numbers.js";

const RAMP = [
  "440154",
  "482475",
  "414487",
  "355f8d",
  "2a788e",
  "21918c",
  "22a884",
  "44bf70",
  "7ad151",
  "bddf26",
  "fde725",
];
export const SHADES = 64;

// the canvas with one drawing pixel per pixel of the screen; units are CSS pixels
export function fitted(canvas, { width, height } = { width: canvas.clientWidth, height: canvas.clientHeight }) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return { context, width, height };
}

let colours = null;

export function theme() {
  if (!colours) {
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(
      ["ink", "soft", "line", "faint", "accent", "bad", "sheet"].map((n) => [
        n,
        style.getPropertyValue(`--${n}`).trim(),
      ]),
    );
  }
  return colours;
}

export function forgetTheme() {
  colours = null;
}

const channels = RAMP.map((c) => [0, 2, 4].map((i) => parseInt(c.slice(i, i + 2), 16)));

// a colour of the ramp as [r, g, b]; on dark ground its dark end, on light ground its light end is left out
function ramp(place) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const x = Math.min(1, Math.max(0, place)) * 0.86 + (dark ? 0.14 : 0);
  const at = Math.min(RAMP.length - 2, Math.floor(x * (RAMP.length - 1)));
  const rest = x * (RAMP.length - 1) - at;
  return channels[at].map((c, i) => Math.round(c + rest * (channels[at + 1][i] - c)));
}

export const shade = (place, alpha = 1) => `rgba(${ramp(place).join()},${alpha})`;

export function shades(alpha) {
  return Array.from({ length: SHADES }, (_, i) => shade(i / (SHADES - 1), alpha));
}

// row → shade number by a column; the lowest and the highest one per cent of the rows share the end colours
export function shading(column, rows) {
  const { places } = column;
  const every = Math.ceil(rows.length / 2000);
  const known = Float32Array.from(
    rows.filter((row, i) => i % every === 0 && places[row] === places[row]),
    (row) => places[row],
  ).sort();
  if (!known.length) return () => 0;
  const [low, high] = [known[Math.floor(0.01 * known.length)], known[Math.ceil(0.99 * (known.length - 1))]];
  const factor = (SHADES - 1) / (high - low || 1);
  const tone = (row) => Math.round(Math.min(SHADES - 1, Math.max(0, (places[row] - low) * factor || 0)));
  return Object.assign(tone, { ends: [column.scale.at(low), column.scale.at(high)] });
}

// what the colours mean
export function legend(box, column, { ends }) {
  const [low, high] = (ends ?? []).map((value) => el("span", { textContent: column.show(value, (x) => short(x, 3)) }));
  const bar = el("i");
  bar.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map((x) => shade(x)).join()})`;
  box.replaceChildren(...(ends ? [low, bar, high] : []));
}

// a number in [-½, ½) that belongs to a row and a dimension: spreads points that share a level
export function jitter(row, dimension) {
  const x = Math.sin(row * 12.9898 + dimension * 78.233) * 43758.5453;
  return x - Math.floor(x) - 0.5;
}

// square dots by the thousand: pixels set in memory, much faster than rectangles drawn one by one
export class Dots {
  constructor({ width, height }) {
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this, { ratio, width: Math.round(width * ratio), height: Math.round(height * ratio) });
    this.image = new ImageData(Math.max(1, this.width), Math.max(1, this.height));
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  // colour: as packed() gives it; size in CSS pixels
  dot(x, y, size, colour) {
    const side = Math.max(1, Math.round(size * this.ratio));
    const [left, top] = [Math.round(x * this.ratio - side / 2), Math.round(y * this.ratio - side / 2)];
    if (!(left >= 0 && top >= 0 && left + side <= this.width && top + side <= this.height)) return;
    for (let row = top; row < top + side; row++)
      this.pixels.fill(colour, row * this.width + left, row * this.width + left + side);
  }

  drawOn(context) {
    const canvas = new OffscreenCanvas(this.image.width, this.image.height);
    canvas.getContext("2d").putImageData(this.image, 0, 0);
    context.drawImage(canvas, 0, 0, this.image.width / this.ratio, this.image.height / this.ratio);
  }
}

const asPixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

export const packedShades = () => Array.from({ length: SHADES }, (_, i) => asPixel(ramp(i / (SHADES - 1))));

// a colour of the style sheet, "#rrggbb"
export const packed = (colour) => asPixel([1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));
