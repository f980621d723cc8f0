// Zoom of a timeline: what is in its plot moves along the time, and stays as high as it is.
for (const svg of document.querySelectorAll("svg.timeline")) {
  const plot = svg.querySelector("svg.plot");
  const [left, , wide] = plot.getAttribute("viewBox").split(" ").map(Number);
  const span = Number(svg.dataset.spanNs), ticks = [...svg.querySelectorAll("text.tick")];
  const marks = [];
  for (const element of plot.querySelectorAll("[x],[x1],[cx]"))
    for (const name of ["x", "x1", "x2", "cx", "width"])
      if (element.hasAttribute(name)) marks.push([element, name, Number(element.getAttribute(name))]);
  let from = 0, zoom = 1; // the part of the run at the left edge, and how often the whole is wider than the plot

  const say = (ns) => ns >= 1e9 ? `${+(ns / 1e9).toFixed(3)} s` : ns >= 1e6 ? `${+(ns / 1e6).toFixed(3)} ms` : `${+(ns / 1e3).toFixed(3)} µs`;
  const show = () => {
    from = Math.min(Math.max(from, 0), 1 - 1 / zoom);
    for (const [element, name, value] of marks)
      element.setAttribute(name, name === "width" ? value * zoom
        : left + (value - left - from * wide) * zoom);
    ticks.forEach((tick, place) => { tick.textContent = say(span * (from + place / (ticks.length - 1) / zoom)); });
    state.textContent = zoom > 1 ? `${zoom}x` : "";
  };
  const zoomAt = (part, factor) => {
    const at = from + part / zoom;
    zoom = Math.min(Math.max(zoom * factor, 1), 1024);
    from = at - part / zoom;
    show();
  };
  const move = (part) => { from += part / zoom; show(); };
  const keys = { "+": () => zoomAt(0.5, 2), "=": () => zoomAt(0.5, 2), "-": () => zoomAt(0.5, 0.5), 0: () => zoomAt(0, 1 / zoom),
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2) };

  const bar = document.createElement("p"), state = document.createElement("span");
  bar.className = "zoom";
  for (const [text, title, key] of [["+", "closer", "+"], ["−", "farther", "-"], ["whole run", "whole run", "0"],
      ["◀", "earlier", "ArrowLeft"], ["▶", "later", "ArrowRight"]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", title);
    button.onclick = keys[key];
    bar.append(button);
  }
  bar.append(state);
  svg.parentElement.before(bar);
  svg.parentElement.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  const partOf = (event) => {
    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return ((event.clientX - box.left) * view.width / box.width - left) / wide;
  };
  plot.addEventListener("dblclick", (event) => { event.preventDefault(); zoomAt(partOf(event), event.shiftKey ? 0.5 : 2); });
  let held = null;
  plot.addEventListener("pointerdown", (event) => { if (zoom > 1) { held = partOf(event); plot.setPointerCapture(event.pointerId); } });
  plot.addEventListener("pointermove", (event) => { if (held !== null) { const now = partOf(event); from -= (now - held) / zoom; held = now; show(); } });
  plot.addEventListener("pointerup", () => { held = null; });
}
