"use strict";
// The heat map of ranks and steps, and the mesh of ranks in which one can be picked.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const heat = document.getElementById("heat"), mesh = document.getElementById("mesh");
  if (!heat || !mesh) return;
  // a text in the page's language, with its {facts}
  const say = (text, facts = {}) => (data.words[text] ?? text).replace(/\{(\w+)\}/g, (_, name) => facts[name]);
  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const count = data.ranks.length, bins = data.steps.length, unit = 0.005;
  const placeOf = new Map(data.ranks.map((rank, at) => [rank, at]));
  const named = new Set(data.named);
  const fromAddress = placeOf.get(Number(location.hash.slice(1)));
  let picked = (location.hash ? fromAddress : undefined) ?? placeOf.get(data.named[0]) ?? 0;

  const layers = Object.fromEntries(Object.entries(data.layers).map(([name, layer]) => {
    const raw = atob(layer.values), values = new Int8Array(raw.length);
    for (let at = 0; at < raw.length; at++) values[at] = raw.charCodeAt(at) << 24 >> 24;
    return [name, { values, usual: layer.usual }];
  }));
  const choice = document.getElementById("layer");
  for (const name of Object.keys(layers)) choice.add(new Option(say(name), name, name === "own work", name === "own work"));

  // pale at 0, red above, blue below; full colour at 30 %
  const dark = () => { const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number); return r + g + b < 384; };
  const shades = () => dark() ? [[52, 58, 69], [255, 92, 92], [92, 165, 255]] : [[244, 245, 247], [178, 24, 43], [33, 102, 172]];
  const colour = (value, [none, more, less]) => {
    if (value === null || value === -128) return "rgba(0,0,0,0)";
    const share = Math.max(-1, Math.min(1, value * unit / 0.3)), depth = Math.sqrt(Math.abs(share));
    const end = share > 0 ? more : less;
    return `rgb(${end.map((part, at) => Math.round(none[at] + (part - none[at]) * depth)).join(",")})`;
  };
  const hostOf = at => data.hosts[data.host[at]] || say("an unknown machine");
  const percent = value => (value > 0 ? "+" : "") + (value * 100).toFixed(1) + " %";

  // Ranks by machine, so that a slow machine is one band. Of many ranks: the slowest one of each machine, the slowest machines first.
  const mostRows = 160, shownRows = 64, left = 130, foot = 20;
  const byMachine = count > mostRows, machines = data.hosts.length > 1;
  let rows = data.ranks.map((_, at) => at).sort((a, b) => data.host[a] - data.host[b] || data.ranks[a] - data.ranks[b]);
  const ordered = layer => {
    if (!byMachine) return rows;
    const means = data.ranks.map((_, at) => {
      let sum = 0, known = 0;
      for (let bin = 0; bin < bins; bin++) { const value = layer.values[at * bins + bin]; if (value !== -128) { sum += value; known++; } }
      return known ? sum / known : -Infinity;
    });
    const slowest = new Map();
    means.forEach((mean, at) => { const key = machines ? data.host[at] : at; if (!slowest.has(key) || mean > means[slowest.get(key)]) slowest.set(key, at); });
    return [...slowest.values()].sort((a, b) => means[b] - means[a]).slice(0, shownRows);
  };
  const tall = byMachine ? 12 : Math.max(4, Math.min(16, Math.floor(640 / count)));
  const fitted = (canvas, height) => {
    const wide = canvas.clientWidth, scale = window.devicePixelRatio || 1;
    canvas.style.height = height + "px"; canvas.width = wide * scale; canvas.height = height * scale;
    const c = canvas.getContext("2d");
    c.scale(scale, scale); c.textBaseline = "middle"; c.font = "12px system-ui, DejaVu Sans, sans-serif";
    return [c, wide];
  };
  const drawHeat = () => {
    const layer = layers[choice.value], palette = shades();
    rows = ordered(layer);
    const height = Math.max(rows.length * tall, 40) + foot, [c, wide] = fitted(heat, height);
    const cell = (wide - left) / bins;
    rows.forEach((at, row) => {
      for (let bin = 0; bin < bins; bin++) {
        c.fillStyle = colour(layer.values[at * bins + bin], palette);
        c.fillRect(left + bin * cell, row * tall, Math.ceil(cell), tall);
      }
    });
    const short = text => text.length > 13 ? text.slice(0, 12) + "…" : text;
    c.fillStyle = style("--soft");
    let start = 0;
    rows.forEach((at, row) => {
      const last = row + 1 === rows.length || data.host[rows[row + 1]] !== data.host[at];
      if (!last) return;
      const many = row + 1 - start, name = data.hosts[data.host[at]];
      if (many * tall >= 11 && name) c.fillText(short(name), 0, (start + row + 1) / 2 * tall);
      if (!byMachine && many * tall >= 6) { c.strokeStyle = style("--card"); c.strokeRect(left, start * tall, wide - left, many * tall); }
      start = row + 1;
    });
    if (tall >= 8) {
      c.font = `${Math.min(12, tall)}px system-ui, DejaVu Sans, sans-serif`; c.textAlign = "right";
      rows.forEach((at, row) => {
        c.fillStyle = named.has(data.ranks[at]) ? style("--bad") : style("--soft");
        c.fillText(data.ranks[at], left - 6, (row + 0.5) * tall);
      });
      c.font = "12px system-ui, DejaVu Sans, sans-serif"; c.textAlign = "left";
    }
    c.fillStyle = style("--soft");
    c.fillText(say("step {number}", { number: data.steps[0] }), left, height - foot / 2);
    c.textAlign = "right"; c.fillText(say("step {number}", { number: data.steps[bins - 1] }), wide, height - foot / 2); c.textAlign = "left";
    const chosen = rows.indexOf(picked);
    if (chosen >= 0) { c.strokeStyle = style("--accent"); c.lineWidth = 2; c.strokeRect(left - 1, chosen * tall, wide - left, tall); }
    const kept = document.getElementById("heat-rows");
    if (byMachine) kept.textContent = machines
      ? `${say("One row a machine: its slowest rank.")} ${rows.length < data.hosts.length ? say("The {shown} slowest of {all} machines.", { shown: rows.length, all: data.hosts.length }) : ""}`
      : say("The {shown} slowest of {all} ranks.", { shown: rows.length, all: count });
  };
  const under = event => {
    const box = heat.getBoundingClientRect(), row = Math.floor((event.clientY - box.top) / tall);
    const bin = Math.floor((event.clientX - box.left - left) / ((box.width - left) / bins));
    return row >= 0 && row < rows.length && bin >= 0 && bin < bins ? [rows[row], bin] : null;
  };
  heat.addEventListener("mousemove", event => {
    const at = under(event), tip = document.getElementById("heat-tip");
    if (!at) { tip.textContent = "\u00a0"; return; }
    const layer = layers[choice.value], value = layer.values[at[0] * bins + at[1]], usual = layer.usual[at[1]];
    const told = value === -128 ? say("no record") : say("{excess}; usual {usual}", { excess: percent(value * unit), usual: usual === null ? say("unknown") : usual.toPrecision(4) + " ms" });
    tip.textContent = say("rank {rank} on {machine}, from step {step}: {told}", { rank: data.ranks[at[0]], machine: hostOf(at[0]), step: data.steps[at[1]], told });
  });
  heat.addEventListener("click", event => { const at = under(event); if (at) pick(at[0]); });

  // the mesh: the last axis to the right, the one before it down, all others as planes side by side
  const { axes, shape, coordinates } = data.mesh;
  const depthAxes = axes.slice(0, Math.max(0, axes.length - 2));
  const lying = axes.length > 1 && shape[axes.length - 2] > shape[axes.length - 1];  // the longer of the last two to the right
  const wideAxis = axes.length - (lying ? 2 : 1), tallAxis = axes.length - (lying ? 1 : 2);
  const axisColour = ["#7c3aed", "#0d9488", "#d97706", "#db2777", "#2563eb", "#65a30d"];
  const cells = [];
  const drawMesh = () => {
    const columns = shape[wideAxis], lines = tallAxis >= 0 ? shape[tallAxis] : 1;
    const planes = depthAxes.reduce((all, _, axis) => all * shape[axis], 1);
    const wide = mesh.clientWidth, flat = axes.length === 1, across = flat ? Math.min(columns, 16) : columns;
    const down = flat ? Math.ceil(columns / across) : lines;
    const perRow = Math.max(1, Math.min(planes, Math.floor(wide / Math.max(90, across * 9))));
    const size = Math.max(3, Math.min(26, (wide / perRow - 24) / (across + down * 0.5)));
    const planeHeight = down * size * 0.9 + 34, height = Math.ceil(planes / perRow) * planeHeight + 10;
    const [c] = fitted(mesh, Math.max(height, 80));
    cells.length = 0;
    const near = neighbours(picked), palette = shades();
    data.ranks.forEach((rank, at) => {
      const place = coordinates[at];
      let plane = 0;
      depthAxes.forEach((_, axis) => { plane = plane * shape[axis] + place[axis]; });
      const x0 = (plane % perRow) * (wide / perRow) + 8, y0 = Math.floor(plane / perRow) * planeHeight + 24;
      const column = flat ? place[0] % across : place[wideAxis], line = flat ? Math.floor(place[0] / across) : place[tallAxis];
      const x = x0 + column * size + (down - 1 - line) * size * 0.5, y = y0 + line * size * 0.9;
      const path = new Path2D();
      path.moveTo(x + size * 0.45, y); path.lineTo(x + size * 1.38, y); path.lineTo(x + size * 0.93, y + size * 0.8); path.lineTo(x, y + size * 0.8); path.closePath();
      const excess = data.excess[at];
      c.fillStyle = colour(excess === null ? null : Math.max(-127, Math.min(127, Math.round(excess / unit))), palette); c.fill(path);
      const axis = near.get(at);
      c.lineWidth = at === picked ? 3 : axis === undefined ? 1 : 2.5;
      c.strokeStyle = at === picked ? style("--ink") : axis === undefined ? style("--line") : axisColour[axis % axisColour.length];
      c.stroke(path);
      if (named.has(rank)) { c.fillStyle = style("--bad"); c.fillText("!", x + size * 0.6, y + size * 0.42); }
      cells.push([path, at]);
    });
    c.fillStyle = style("--soft");
    for (let plane = 0; plane < planes && depthAxes.length; plane++) {
      let rest = plane;
      const at = depthAxes.map((_, axis) => axis).reverse().map(axis => { const v = rest % shape[axis]; rest = Math.floor(rest / shape[axis]); return `${axes[axis]} ${v}`; }).reverse();
      c.fillText(at.join(", "), (plane % perRow) * (wide / perRow) + 8, Math.floor(plane / perRow) * planeHeight + 10);
    }
  };
  // ranks that differ from one in a single coordinate, with that axis
  const neighbours = at => {
    const found = new Map();
    coordinates.forEach((place, other) => {
      const differ = axes.map((_, axis) => axis).filter(axis => place[axis] !== coordinates[at][axis]);
      if (differ.length === 1) found.set(other, differ[0]);
    });
    return found;
  };
  const bytes = value => { const units = ["B", "KB", "MB", "GB", "TB"]; let at = 0; while (value >= 1000 && at < 4) { value /= 1000; at++; } return value.toPrecision(3) + " " + units[at]; };
  const add = (parent, tag, text) => { const node = document.createElement(tag); if (text !== undefined) node.textContent = text; parent.append(node); return node; };
  const link = (parent, rank) => {
    if (parent.lastChild && parent.lastChild.nodeName === "BUTTON") parent.append(" ");
    const button = add(parent, "button", String(rank));
    button.className = "rank"; button.type = "button";
    button.addEventListener("click", () => { if (placeOf.has(rank)) pick(placeOf.get(rank)); });
  };
  const about = () => {
    const box = document.getElementById("about"), rank = data.ranks[picked];
    box.replaceChildren();
    const excess = data.excess[picked];
    add(box, "p", say("Rank {rank} on {machine}", { rank, machine: hostOf(picked) }) + (excess === null ? "" : say(", own work {excess} against its equals", { excess: percent(excess) })));
    const near = neighbours(picked), list = add(box, "ul");
    axes.forEach((axis, number) => {
      const same = [...near].filter(([, on]) => on === number).map(([at]) => data.ranks[at]);
      if (!same.length) return;
      const item = add(list, "li", say("{axis} {place} of {count}: ", { axis, place: coordinates[picked][number], count: shape[number] }));
      item.style.color = axisColour[number % axisColour.length];
      same.slice(0, 16).forEach(one => link(item, one));
      if (same.length > 16) add(item, "span", ` … ${same.length}`);
    });
    const waits = data.waits[picked];
    add(box, "p", say(waits.length ? "It waits for:" : "It waits for nobody."));
    if (waits.length) { const item = add(box, "ul"); waits.forEach(([other, ms]) => { const line = add(item, "li", "rank "); link(line, other); add(line, "span", say(" {ms} ms a step", { ms: ms.toPrecision(3) })); }); }
    const stuck = data.hang[String(rank)];
    if (stuck) { add(box, "p", say("It hangs, waiting for:")); const item = add(box, "ul"); Object.entries(stuck).slice(0, 12).forEach(([other, call]) => { const line = add(item, "li", "rank "); link(line, Number(other)); add(line, "span", say(" in {call}", { call })); }); }
    const groups = data.groups.filter(group => group.ranks.includes(rank));
    if (groups.length) {
      add(box, "p", say("What flows, a step:"));
      const item = add(box, "ul");
      groups.forEach(group => add(item, "li", say("{name} of {ranks} ranks: {calls} calls, {bytes}, {ms} ms", { name: group.name, ranks: group.ranks.length, calls: group.calls, bytes: bytes(group.bytes), ms: group.ms.toPrecision(3) })));
    }
    document.getElementById("picked").value = rank;
  };
  const pick = at => { picked = at; history.replaceState(null, "", "#" + data.ranks[at]); draw(); };  // a page that reloads keeps it
  document.getElementById("picked").addEventListener("change", event => { const at = placeOf.get(Number(event.target.value)); if (at !== undefined) pick(at); });
  document.getElementById("axes").textContent = axes.map((axis, at) => `${axis} ${shape[at]}`).join(" · ");
  mesh.addEventListener("click", event => {
    const box = mesh.getBoundingClientRect(), c = mesh.getContext("2d"), scale = window.devicePixelRatio || 1;
    const hit = cells.findLast(([path]) => c.isPointInPath(path, (event.clientX - box.left) * scale, (event.clientY - box.top) * scale));
    if (hit) pick(hit[1]);
  });
  choice.addEventListener("change", drawHeat);
  const draw = () => { drawHeat(); drawMesh(); about(); };
  new ResizeObserver(draw).observe(document.querySelector("main"));
  new MutationObserver(draw).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  draw();
  // A page at an address with a rank (#5) is not loaded again by its `refresh`: browsers take that for a jump within the page.
  const again = [...document.getElementsByTagName("meta")].find(meta => meta.httpEquiv === "refresh");
  if (again && location.hash) setTimeout(() => location.reload(), 1000 * Number(again.content));
})();
