// Looks closer at a curve, and tells the value of a point. The page is complete without it.
"use strict";
const tip = document.getElementById("tip");
const data = JSON.parse(document.getElementById("data").textContent);
// Tells a point's value where the pointer is, at once and on a phone too.
for (const mark of document.querySelectorAll("figure .dot, figure .bar")) {
  const text = mark.querySelector("title");
  if (!text) continue;
  mark.addEventListener("pointerenter", (event) => {
    tip.textContent = text.textContent;
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  });
  mark.addEventListener("pointerleave", () => { tip.hidden = true; });
}
// A drag across a picture of curves chooses the part that fills it then. Heights stay as they are.
for (const figure of document.querySelectorAll('figure[data-zoom="true"]')) {
  const svg = figure.querySelector("svg");
  const all = svg.getAttribute("viewBox");
  const [, top, width, height] = all.split(" ").map(Number);
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    const [left, , wide] = svg.getAttribute("viewBox").split(" ").map(Number);
    return left + (event.clientX - box.left) * wide / box.width;
  };
  let from = null, chosen = null;
  svg.addEventListener("pointerdown", (event) => {
    from = place(event);
    chosen = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of [["class", "chosen"], ["y", top], ["height", height], ["width", 0], ["x", from]]) chosen.setAttribute(name, value);
    svg.append(chosen);
  });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const to = place(event);
    chosen.setAttribute("x", Math.min(from, to));
    chosen.setAttribute("width", Math.abs(to - from));
  });
  const end = (event) => {
    if (from === null) return;
    const to = place(event), left = Math.max(0, Math.min(from, to)), right = Math.min(width, Math.max(from, to));
    chosen.remove();
    from = null;
    if (right - left < 20) return;
    // The drawing keeps its height: it is stretched along the axis alone.
    svg.style.height = `${svg.getBoundingClientRect().height}px`;
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("viewBox", `${left} ${top} ${right - left} ${height}`);
  };
  svg.addEventListener("pointerup", end);
  svg.addEventListener("dblclick", () => {
    svg.style.height = "";
    svg.removeAttribute("preserveAspectRatio");
    svg.setAttribute("viewBox", all);
  });
}
// For who looks at the page by program: it was read, and holds so many runs.
document.body.dataset.runs = data.runs.length;
