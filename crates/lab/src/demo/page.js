// Reads the values of a second where the pointer is. The page is complete without it.
"use strict";
const tip = document.getElementById("tip");
for (const chart of JSON.parse(document.getElementById("points").textContent)) {
  const svg = document.getElementById(chart.id);
  const cursor = svg.querySelector(".cursor");
  const hide = () => { tip.hidden = true; cursor.style.visibility = "hidden"; };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    if (x < chart.left || x > chart.right) { hide(); return; }
    const at = Math.max(1, Math.round((x - chart.left) / (chart.right - chart.left) * chart.seconds));
    const place = chart.left + (chart.right - chart.left) * at / chart.seconds;
    for (const [name, value] of [["x1", place], ["x2", place], ["y1", chart.top], ["y2", chart.bottom]]) cursor.setAttribute(name, value);
    cursor.style.visibility = "visible";
    tip.replaceChildren(document.createTextNode(`second ${at}`));
    for (const curve of chart.curves) {
      const point = curve.points.find(([second]) => second === at);
      const line = document.createElement("div");
      line.className = curve.class;
      line.textContent = `${curve.name}: ${point ? Number(point[1].toPrecision(3)) : "-"} ${chart.unit}`;
      tip.append(line);
    }
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  });
}
