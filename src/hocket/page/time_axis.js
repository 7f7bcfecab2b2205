// A time axis that several drawings share: from when to when, ticks, and panning.

import { clock, day, zone_min } from "./text.js";

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** Times and their labels, at least `apart` pixels from each other. */
export function ticks(from_s, until_s, width, apart = 90) {
  const least_s = ((until_s - from_s) * apart) / Math.max(width, 1);
  const step_s = STEPS_S.find((step) => step >= least_s) ?? Math.ceil(least_s / 604800) * 604800;
  const zone_s = zone_min(from_s) * 60;
  const found = [];
  for (let at_s = Math.ceil((from_s - zone_s) / step_s) * step_s + zone_s; at_s <= until_s; at_s += step_s) {
    found.push([at_s, step_s >= 86400 ? day(at_s) : clock(at_s, step_s < 60).slice(-(step_s < 60 ? 8 : 5))]);
  }
  return found;
}

/** Draws ticks and their labels at the top of a drawing. */
export function drawAxis(context, colour, { from_s, until_s, left, width, top, height }) {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.lineWidth = 1;
  for (const [at_s, label] of ticks(from_s, until_s, width)) {
    const x = Math.round(left + ((at_s - from_s) / (until_s - from_s)) * width) + 0.5;
    context.strokeStyle = colour("grid");
    context.beginPath();
    context.moveTo(x, top + 16);
    context.lineTo(x, top + height);
    context.stroke();
    const half = context.measureText(label).width / 2;
    if (x - half < left || x + half > left + width) continue;
    context.fillStyle = colour("muted");
    context.textAlign = "center";
    context.fillText(label, x, top + 8);
  }
}
