"use strict";
// The panel beside the picture: what a frame says, and the frames with most weight of their own.
(() => {
  const svg = document.getElementById("layerscope-flame");
  const data = JSON.parse(document.getElementById("frames-data").textContent);
  const body = document.querySelector("#heaviest tbody"), name = document.getElementById("frame-name");
  const third = document.querySelectorAll("#heaviest th")[2].dataset.by;
  const list = document.getElementById("frame-lines");
  svg.addEventListener("flame-frame", event => {
    name.textContent = event.detail.label;
    list.replaceChildren(...event.detail.lines.map(line => Object.assign(document.createElement("li"), { textContent: line })));
  });
  function row(frame) {
    const made = document.createElement("tr"), first = document.createElement("td"), link = document.createElement("button");
    link.append(Object.assign(document.createElement("i"), { className: frame.layer }), frame.label);
    link.title = frame.place || frame.label;
    link.addEventListener("click", () => svg.dispatchEvent(new CustomEvent("flame-search", { detail: frame.label })));
    first.append(link);
    const numbers = [frame.own_text, frame[`${third}_text`]];
    made.append(first, ...numbers.map(text => Object.assign(document.createElement("td"), { textContent: text })));
    if (third === "change" && !frame.sure) made.lastChild.className = "faint";
    if (third === "change" && !frame.sure) made.lastChild.title = "no more than chance";
    return made;
  }
  function sort(by) {
    body.replaceChildren(...[...data].sort((a, b) => b[by] - a[by]).slice(0, 200).map(row));
    for (const head of document.querySelectorAll("#heaviest th")) {
      if (head.dataset.by) head.setAttribute("aria-sort", head.dataset.by === by ? "descending" : "none");
    }
  }
  for (const head of document.querySelectorAll("#heaviest th[data-by] button")) {
    head.addEventListener("click", () => sort(head.parentElement.dataset.by));
  }
  sort(third === "change" ? third : "own");
})();
