"use strict";
// drawings over time tell what was at the mouse; points of a front tell their copy, and a click shows its command
(() => {
  const data = JSON.parse(document.getElementById("data")?.textContent ?? "null"), LEFT = 76, RIGHT = 16;
  const over = data?.over, told = document.getElementById("over-told");
  if (over && told) {
    const lines = [...document.querySelectorAll("svg.over-time .cross")];
    const time = s => s >= 1000 ? s.toFixed(0) + " s" : s >= 1 ? s.toPrecision(4) + " s" : (1e3 * s).toPrecision(3) + " ms";
    const show = share => {
      const count = over.running.length, bin = Math.max(0, Math.min(count - 1, Math.floor(share * count)));
      told.textContent = `after ${time(share * over.end)}: ${over.running[bin].toFixed(1)} requests run, ${over.waiting[bin].toFixed(1)} wait, `
        + `${Math.round(over.tokens[bin]).toLocaleString("en")} tokens a second, ${(100 * over.used[bin]).toFixed(0)} % of the cache in use`;
      for (const line of lines) {
        const wide = line.ownerSVGElement.viewBox.baseVal.width, x = LEFT + share * (wide - LEFT - RIGHT);
        line.setAttribute("x1", x); line.setAttribute("x2", x); line.setAttribute("visibility", "visible");
      }
    };
    for (const svg of document.querySelectorAll("svg.over-time")) svg.addEventListener("pointermove", e => {
      const box = svg.getBoundingClientRect(), wide = svg.viewBox.baseVal.width, x = (e.clientX - box.left) / box.width * wide;
      if (x >= LEFT && x <= wide - RIGHT) show((x - LEFT) / (wide - LEFT - RIGHT));
    });
  }
  const points = data?.points, chosen = document.getElementById("chosen");
  if (points && chosen) {
    const command = document.getElementById("command"), dots = [...document.querySelectorAll("[data-point]")];
    let picked = -1;
    const tell = n => { chosen.textContent = points[n].words; command.textContent = points[n].command; };
    for (const dot of dots) {
      const n = Number(dot.dataset.point);
      dot.addEventListener("pointerenter", () => tell(n));
      dot.addEventListener("pointerleave", () => { if (picked >= 0) tell(picked); });
      const pick = () => {
        picked = n; tell(n);
        for (const other of dots) other.setAttribute("stroke-width", Number(other.dataset.point) === n ? "4" : "1.5");
      };
      dot.addEventListener("click", pick);
      dot.addEventListener("focus", () => tell(n));
      dot.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); pick(); } });
    }
    document.getElementById("copy")?.addEventListener("click", () => navigator.clipboard?.writeText(command.textContent));
    if (data.best >= 0) dots.find(dot => Number(dot.dataset.point) === data.best)?.dispatchEvent(new Event("click"));
  }
})();
