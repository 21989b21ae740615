"use strict";
// the slider colours the fabric's drawing by the load in one bin of time, and frames the bin in the heat maps
(() => {
  const load = JSON.parse(document.getElementById("data").textContent).load, slider = document.getElementById("moment");
  if (!load || !slider) return;
  const told = document.getElementById("moment-told");
  const shapes = [...document.querySelectorAll("#fabric [data-row]")].map(shape => {
    const line = shape.tagName === "line", names = line ? ["stroke", "stroke-width", "stroke-opacity"] : ["fill"];
    const title = shape.querySelector("title");
    return { shape, line, title, names, before: names.map(n => shape.getAttribute(n)), words: title.textContent,
             steps: (line ? load.edges : load.boxes)[Number(shape.dataset.row)] };
  });
  const show = () => {
    const bin = Number(slider.value) - 1;
    told.textContent = bin < 0 ? "over the whole run" : `${load.times[bin]} to ${load.times[bin + 1]}`;
    slider.setAttribute("aria-valuetext", told.textContent);
    for (const s of shapes) {
      const step = bin < 0 ? 0 : Number(s.steps[bin]), strength = step / (load.colours.length - 1);
      const now = bin < 0 ? s.before : s.line ? [load.colours[step], 0.6 + 2.4 * strength, 0.25 + 0.75 * strength] : [load.colours[step]];
      s.names.forEach((name, i) => s.shape.setAttribute(name, now[i]));
      s.title.textContent = bin < 0 ? s.words : `${s.shape.dataset.name}: fullest link ${load.words[step]}, ${told.textContent}`;
    }
    for (const heat of document.querySelectorAll("svg.heat")) {
      const now = heat.querySelector(".now");
      now.setAttribute("visibility", bin < 0 ? "hidden" : "visible");
      now.setAttribute("x", Number(heat.dataset.left) + Math.max(0, bin) * Number(heat.dataset.each));
    }
  };
  slider.addEventListener("input", show);
  show();
})();
