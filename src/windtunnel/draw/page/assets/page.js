"use strict";
// tables, drawings and points of a sheet: `root` is the document, or a part of another page; returns what draws it in a new theme
function wireSheet(root) {
  const find = id => root.getElementById(id);

  // tables: sort by a column, filter by words
  for (const table of root.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0];
    table.querySelectorAll("th[data-sort]").forEach(head => {
      const sort = () => {
        const at = head.cellIndex, numeric = head.dataset.sort === "number";
        const down = head.getAttribute("aria-sort") !== (numeric ? "descending" : "ascending");
        const sign = (numeric ? -1 : 1) * (down ? 1 : -1);
        table.querySelectorAll("th").forEach(h => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const value = row => { const c = row.cells[at]; return numeric ? Number(c.dataset.value) : c.textContent.toLowerCase(); };
        [...body.rows].map(r => [value(r), r]).sort((a, b) => a[0] < b[0] ? -sign : a[0] > b[0] ? sign : 0).forEach(e => body.append(e[1]));
      };
      head.tabIndex = 0;
      head.addEventListener("click", sort);
      head.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); } });
    });
  }
  for (const box of root.querySelectorAll("input[data-filters]")) {
    const table = find(box.dataset.filters), count = find(box.dataset.filters + "-count");
    box.addEventListener("input", () => {
      const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every(w => text.includes(w));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = `${shown} of ${table.tBodies[0].rows.length}`;
    });
  }

  // every table as CSV: what is shown, and behind it the numbers to compute with, in seconds, bytes, shares and dollars
  const quoted = text => {
    const plain = /^[+-]?\s?\$?[\d.,]+\s?[%\w/µ±]{0,12}$/.test(text);  // anything else behind such a sign, a spreadsheet would run
    const safe = /^[=@+\-\t\r]./.test(text) && !plain ? "'" + text : text;
    return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  };
  const csv = table => {
    const heads = [...table.tHead.rows[0].cells], numeric = heads.map(h => h.dataset.sort === "number");
    const names = heads.map((h, i) => h.textContent.trim() || (i ? `column ${i + 1}` : "row"));
    const lines = [[...names, ...names.filter((_, i) => numeric[i]).map(n => n + ", number")]];
    for (const row of table.tBodies[0].rows) {
      const cells = [...row.cells].slice(0, heads.length), shown = cells.map(c => c.textContent.trim());
      lines.push([...shown, ...cells.filter((_, i) => numeric[i]).map(c => /\d/.test(c.textContent) ? c.dataset.value ?? "" : "")]);
    }
    return lines.map(line => line.map(quoted).join(",")).join("\r\n") + "\r\n";
  };
  for (const table of root.querySelectorAll("table[data-sortable]")) {
    const button = document.createElement("button");
    button.type = "button"; button.className = "csv"; button.textContent = "CSV"; button.title = "download this table";
    button.setAttribute("aria-label", `download the table ${table.id} as CSV`);
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.setAttribute("href", URL.createObjectURL(new Blob(["\ufeff", csv(table)], { type: "text/csv" })));
      link.download = `${table.id || "table"}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.getAttribute("href")), 1000);
    });
    (table.closest(".scroll") ?? table).after(button);
  }

  // what is wider than the window can be scrolled by keyboard
  const reach = () => {
    for (const box of root.querySelectorAll(".scroll, section")) {
      if (box.scrollWidth > box.clientWidth) { box.tabIndex = 0; box.setAttribute("role", "group"); box.setAttribute("aria-label", "scrolls sideways"); }
      else { box.removeAttribute("tabindex"); box.removeAttribute("role"); box.removeAttribute("aria-label"); }
    }
  };
  new ResizeObserver(reach).observe(root.body ?? root.host);

  // drawings of a group tell what was at the mouse
  const say = (value, unit) => unit === "%" ? `${Math.round(100 * value)} %` : unit === "s" ? seconds(value)
    : value >= 10 ? Math.round(value).toLocaleString("en") : value.toPrecision(2);
  const seconds = s => s >= 1000 ? s.toFixed(0) + " s" : s >= 1 ? s.toPrecision(4) + " s" : (1e3 * s).toPrecision(3) + " ms";
  const groups = new Map();
  for (const svg of root.querySelectorAll("svg[data-told]")) {
    const name = svg.getAttribute("class");
    groups.set(name, [...(groups.get(name) ?? []), [svg, JSON.parse(svg.dataset.told)]]);
  }
  for (const drawings of groups.values()) {
    const line = document.createElement("p");
    line.className = "soft told"; line.setAttribute("aria-live", "polite");
    drawings.at(-1)[0].closest(".scroll").after(line);
    const show = share => {
      const words = drawings.flatMap(([, told]) => told.curves.map(c =>
        `${c.name} ${say(c.values[Math.max(0, Math.min(c.values.length - 1, Math.floor(share * c.values.length)))], c.unit)}`));
      line.textContent = `${seconds(share * drawings[0][1].end)}: ${words.join(" · ")}`;
      for (const [svg] of drawings) for (const cross of svg.querySelectorAll(".cross")) {
        const x = 76 + share * (svg.viewBox.baseVal.width - 92);
        cross.setAttribute("x1", x); cross.setAttribute("x2", x); cross.setAttribute("visibility", "visible");
      }
    };
    for (const [svg] of drawings) svg.addEventListener("pointermove", e => {
      const box = svg.getBoundingClientRect(), wide = svg.viewBox.baseVal.width, x = (e.clientX - box.left) / box.width * wide;
      if (x >= 76 && x <= wide - 16) show((x - 76) / (wide - 92));
    });
  }

  // points tell what they are, and a click keeps one with its command
  for (const box of root.querySelectorAll(".chosen")) {
    const told = JSON.parse(box.dataset.told), command = box.querySelector(".command"), words = box.querySelector(".words");
    const dots = [...box.closest("section").querySelectorAll("[data-point]")];
    let picked = -1;
    const tell = n => { words.textContent = told.points[n].words; command.textContent = told.points[n].command; };
    for (const dot of dots) {
      const n = Number(dot.dataset.point);
      const pick = () => {
        picked = n; tell(n);
        for (const other of dots) other.setAttribute("stroke-width", Number(other.dataset.point) === n ? "4" : "1.5");
      };
      dot.addEventListener("pointerenter", () => tell(n));
      dot.addEventListener("pointerleave", () => { if (picked >= 0) tell(picked); });
      dot.addEventListener("focus", () => tell(n));
      dot.addEventListener("click", pick);
      dot.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); pick(); } });
    }
    box.querySelector(".copy").addEventListener("click", () => navigator.clipboard?.writeText(command.textContent));
    dots.find(dot => Number(dot.dataset.point) === told.best)?.dispatchEvent(new Event("click"));
  }

  // the slider colours the fabric's drawing by the load in one bin of time, and frames the bin in the heat maps
  const slider = find("moment");
  if (slider) {
    const load = JSON.parse(find("moment-data").textContent), told = find("moment-told");
    const shapes = [...root.querySelectorAll("#fabric [data-row]")].map(shape => {
      const line = shape.tagName === "line", names = line ? ["stroke", "stroke-width", "stroke-opacity"] : ["fill"];
      const title = shape.querySelector("title");
      return { shape, line, title, names, before: names.map(n => shape.getAttribute(n)), words: title.textContent,
               steps: (line ? load.edge_bins : load.box_bins)[Number(shape.dataset.row)] };
    });
    const show = () => {
      const bin = Number(slider.value) - 1;
      told.textContent = bin < 0 ? load.whole : load.to.replace("{begin}", load.times[bin]).replace("{end}", load.times[bin + 1]);
      slider.setAttribute("aria-valuetext", told.textContent);
      for (const s of shapes) {
        const step = bin < 0 ? 0 : Number(s.steps[bin]), strength = step / (load.colours.length - 1);
        const now = bin < 0 ? s.before : s.line ? [load.colours[step], 0.6 + 2.4 * strength, 0.25 + 0.75 * strength] : [load.colours[step]];
        s.names.forEach((name, i) => s.shape.setAttribute(name, now[i]));
        s.title.textContent = bin < 0 ? s.words : `${s.shape.dataset.name}: ${load.fullest} ${load.words[step]}, ${told.textContent}`;
      }
      for (const heat of root.querySelectorAll("svg.heat")) {
        const now = heat.querySelector(".now");
        now.setAttribute("visibility", bin < 0 ? "hidden" : "visible");
        now.setAttribute("x", Number(heat.dataset.left) + Math.max(0, bin) * Number(heat.dataset.each));
      }
    };
    slider.addEventListener("input", show);
    show();
  }

  // the pipeline: one row a stage, computation above, transfers in a thin lane below
  const canvas = find("pipeline");
  let draw = () => {};
  if (canvas) {
    const data = JSON.parse(find("pipeline-data").textContent), style = name => getComputedStyle(canvas).getPropertyValue(name).trim();
    const tip = find("tip"), reset = find("reset");
    const stages = data.stages, spans = data.spans, end = data.end, left = 62, low = 24;
    const tall = Math.max(26, Math.min(54, 460 / stages.length)), gap = Math.max(2, tall * 0.12);
    const height = stages.length * tall + low;
    let from = 0, to = end;
    canvas.style.height = height + "px";
    const time = us => us >= 1e6 ? (us / 1e6).toPrecision(4) + " s" : us >= 1e3 ? (us / 1e3).toPrecision(4) + " ms" : us.toPrecision(3) + " µs";
    const box = s => {
      const top = s[0] * tall + gap / 2, full = tall - gap;
      return s[5] ? [top + full * 0.78, full * 0.22] : [top, full * 0.74];
    };
    draw = () => {
      const wide = canvas.clientWidth, scale = window.devicePixelRatio || 1;
      canvas.width = wide * scale; canvas.height = height * scale;
      const c = canvas.getContext("2d");
      c.scale(scale, scale);
      const x = t => left + (t - from) / (to - from) * (wide - left);
      c.textBaseline = "middle";
      c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      stages.forEach((stage, i) => {
        c.fillStyle = style("--idle"); c.fillRect(left, i * tall + gap / 2, wide - left, (tall - gap) * 0.74);
        c.fillStyle = style("--soft"); c.textAlign = "right"; c.fillText(`${data.stage} ${stage}`, left - 8, i * tall + tall * 0.42);
      });
      c.save(); c.beginPath(); c.rect(left, 0, wide - left, height); c.clip();
      c.textAlign = "center";
      for (const s of spans) {
        if (s[2] < from || s[1] > to) continue;
        const a = x(s[1]), w = Math.max(0.5, x(s[2]) - a), [y, h] = box(s), kind = data.kinds[s[3]];
        c.globalAlpha = s[6] > 0 ? 1 - Math.min(0.5, 0.3 * (data.chunks - 1)) * s[6] / (data.chunks - 1) : 1;
        c.fillStyle = kind.colour; c.fillRect(a, y, Math.max(0.5, w - (w > 4 ? 1 : 0)), h);
        c.globalAlpha = 1;
        if (s[4] >= 0 && !s[5] && w > 7 + 7 * String(s[4]).length && h > 12) { c.fillStyle = "#fff"; c.fillText(s[4], a + w / 2, y + h / 2 + 1); }
      }
      c.restore();
      c.fillStyle = style("--soft"); c.strokeStyle = style("--line");
      const rough = (to - from) / Math.max(2, (wide - left) / 120), unit = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map(k => k * unit).find(k => k >= rough);
      for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
        const at = x(t); c.beginPath(); c.moveTo(at, stages.length * tall); c.lineTo(at, stages.length * tall + 5); c.stroke();
        c.textAlign = at > wide - 40 ? "right" : at < left + 20 ? "left" : "center"; c.fillText(t === 0 ? "0" : time(t), at, height - 9);
      }
      reset.hidden = from === 0 && to === end;
    };
    const clamp = (a, b) => {
      const size = b - a > 0.9999 * end ? end : Math.max(end / 5000, b - a);  // rounded, all of it would keep the button that shows all
      from = Math.max(0, Math.min(a, end - size)); to = from + size; draw();
    };
    const at = e => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top, r.width]; };
    const when = (px, w) => from + (px - left) / (w - left) * (to - from);
    canvas.addEventListener("wheel", e => {
      if (!e.ctrlKey && !e.shiftKey) return;   // a plain wheel scrolls the page
      e.preventDefault();
      const [px, , w] = at(e), t = when(px, w), k = Math.exp((e.deltaY || e.deltaX) * 0.002);
      clamp(t - (t - from) * k, t + (to - t) * k);
    }, { passive: false });
    let drag = null;
    canvas.addEventListener("pointerdown", e => { drag = [e.clientX, from, to]; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointermove", e => {
      const [px, py, w] = at(e);
      if (drag) { const d = (drag[0] - e.clientX) / (w - left) * (drag[2] - drag[1]); clamp(drag[1] + d, drag[2] + d); tip.style.display = "none"; return; }
      const t = when(px, w), slack = (to - from) / (w - left);
      let hit = null, least = slack;  // the nearest within a pixel, so that thin blocks can be met and wide ones end where they end
      if (px >= left) for (const s of spans) {
        const [y, h] = box(s), off = Math.max(s[1] - t, t - s[2], 0);
        if (off <= least && y <= py && py <= y + h) { hit = s; least = off; }
      }
      tip.style.display = hit ? "block" : "none";
      if (!hit) return;
      tip.textContent = `${data.names[hit[7]]}\n${data.stage} ${stages[hit[0]]}` + (hit[4] >= 0 ? `, micro batch ${hit[4]}` : "") + (hit[6] >= 0 ? `, chunk ${hit[6]}` : "")
        + `\n${time(hit[1])} to ${time(hit[2])}, ${time(hit[2] - hit[1])}`;
      tip.style.left = Math.min(px + 14, w - tip.offsetWidth - 4) + "px"; tip.style.top = py + 14 + "px";
    });
    canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
    canvas.addEventListener("dblclick", e => { const [px, , w] = at(e), t = when(px, w), half = (to - from) / 4; clamp(t - half, t + half); });
    canvas.addEventListener("keydown", e => {
      const size = to - from, mid = (from + to) / 2, moves = { ArrowLeft: [-0.2, 1], ArrowRight: [0.2, 1], "+": [0, 0.5], "-": [0, 2] };
      if (moves[e.key]) { e.preventDefault(); const [d, k] = moves[e.key]; clamp(mid + d * size - size * k / 2, mid + d * size + size * k / 2); }
    });
    reset.addEventListener("click", () => clamp(0, end));
    new ResizeObserver(draw).observe(canvas);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  draw();
  return draw;
}

// a sheet as a part of another page, with looks of its own
customElements.define("wt-sheet", class extends HTMLElement {
  connectedCallback() {
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    root.innerHTML = `<style>${this.getAttribute("looks") ?? ""}</style>${this.getAttribute("markup") ?? ""}`;
    wireSheet(root);
  }
});

// a page of its own
if (document.getElementById("theme")) (() => {
  const root = document.documentElement;
  const draw = wireSheet(document);

  // the command that makes this page, to take along
  const made = document.getElementById("made-by");
  if (made && navigator.clipboard) {
    const button = document.createElement("button");
    button.type = "button"; button.textContent = "copy"; button.style.marginLeft = "8px";
    button.addEventListener("click", () => navigator.clipboard.writeText(made.textContent).then(() => { button.textContent = "copied"; }, () => {}));
    made.after(button);
  }

  // the theme follows the system until the button is used
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    draw();
  });
})();
