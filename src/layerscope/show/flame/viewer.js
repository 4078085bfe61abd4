"use strict";
// Zoom, search, tooltips and keyboard of a flame graph. Its frames are the rects in #frames, in the order of the data:
// a parent before its children. Weights are whole numbers; places are parts of the whole.
(() => {
  const svg = document.getElementById("layerscope-flame");
  const data = JSON.parse(svg.querySelector("#flame-data").textContent);
  const { parent, start, total, own, count, frame, depth } = data.nodes;
  const rects = [...svg.querySelectorAll("#frames rect")];
  const labels = svg.querySelector("#labels");
  const size = rects.length, whole = data.whole || 1, ROW = data.row, TOP = data.top;
  const SVG = "http://www.w3.org/2000/svg", XHTML = "http://www.w3.org/1999/xhtml";
  const isPage = svg !== document.documentElement;
  const texts = new Array(size).fill(null);
  const children = Array.from({ length: size }, () => []);
  for (let i = 1; i < size; i++) children[parent[i]].push(i);
  for (const below of children) below.sort((a, b) => start[a] - start[b]);
  const end = i => start[i] + total[i];
  const top = i => TOP + (data.flipped ? data.rows - 1 - depth[i] : depth[i]) * ROW;
  let width = data.width, zoomed = 0, chosen = 0, hits = null, letter = 7.25, waiting = 0;

  // ---- words ----
  const three = v => Math.abs(v) < 9.995 ? v.toFixed(2) : Math.abs(v) < 99.95 ? v.toFixed(1) : Math.round(v).toLocaleString("en-US");
  const amount = v => {
    if (data.unit !== "ns") return Number.isInteger(v) ? v.toLocaleString("en-US") : three(v);
    for (const [step, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (Math.abs(v) >= step) return three(v / step) + " " + unit;
    return Math.round(v) + " ns";
  };
  const percent = v => v > 0 && v < 0.0005 ? "<0.1 %" : (100 * v).toFixed(1) + " %";
  const signed = (v, text) => (v > 0 ? "+" : "") + text;
  const counted = (v, noun) => `${v.toLocaleString("en-US")} ${noun}${v === 1 ? "" : "s"}`;
  const about = i => data.frames[frame[i]];
  // The interval in which the share lies with 95 %, as Wilson gives it for so many samples.
  const interval = (share, n) => {
    const z2 = 1.96 * 1.96, middle = (share + z2 / (2 * n)) / (1 + z2 / n);
    const half = 1.96 / (1 + z2 / n) * Math.sqrt(share * (1 - share) / n + z2 / (4 * n * n));
    return [Math.max(0, middle - half), Math.min(1, middle + half)];
  };
  function lines(i) {
    const { place, layer, hot } = about(i), said = [];
    said.push(layer + (place ? " · " + place : ""));
    said.push(`${amount(total[i])}, ${percent(total[i] / whole)} of all` + (i && zoomed && total[i] <= total[zoomed] ? `, ${percent(total[i] / total[zoomed])} of what is shown` : "") + `; its own ${amount(own[i])}`);
    if (data.sampled && i) {
      const [low, high] = interval(total[i] / whole, count[0]);
      said.push(`${counted(count[i], "sample")}: ${percent(low)} to ${percent(high)} with 95 %`);
    } else if (!data.sampled && i) said.push(`${counted(count[i], "span")} in it`);
    if (hot && hot.length) said.push("lines " + hot.map(([line, share]) => `${line} (${percent(share)})`).join(", "));
    if (data.compared) {
      const now = total[i] / data.compared.units, change = data.nodes.change[i], before = now - change;
      const part = before > 0 ? ` (${signed(change, (100 * change / before).toFixed(1))} %)` : " (new)";
      said.push(`per ${data.compared.per}: ${amount(now)}, before ${amount(before)}, ${signed(change, amount(change))}${part}`);
      if (!data.nodes.sure[i]) said.push("no more than chance or nothing");
    }
    return said;
  }
  const name = i => about(i).label;

  // ---- places ----
  const isAround = i => depth[i] < depth[zoomed] && start[i] <= start[zoomed] && end(i) >= end(zoomed) && isAbove(i, zoomed);
  function isAbove(i, j) {
    while (j > i) j = parent[j];
    return j === i;
  }
  // The longest form of a label that there is room for; the shortest is cut.
  function fitted(i, px) {
    const room = Math.floor((px - 6) / letter);
    if (room < 3) return "";
    const forms = [name(i), ...(about(i).shorter || [])];
    const shortest = forms[forms.length - 1];
    return forms.find(words => words.length <= room) || shortest.slice(0, room - 1) + "…";
  }
  function layout() {
    const scale = width / (total[zoomed] || 1), from = start[zoomed];
    for (let i = 0; i < size; i++) {
      const around = depth[i] < depth[zoomed] && isAround(i);
      const inside = depth[i] >= depth[zoomed] && start[i] >= from && end(i) <= end(zoomed) && (depth[i] > depth[zoomed] || i === zoomed);
      const px = around ? width : total[i] * scale, x = around ? 0 : (start[i] - from) * scale;
      const rect = rects[i], shown = around || (inside && px >= 0.1);
      rect.style.display = shown ? "" : "none";
      rect.classList.toggle("around", around);
      const words = shown ? fitted(i, px) : "";
      if (shown) {
        rect.setAttribute("x", x.toFixed(2));
        rect.setAttribute("width", Math.max(px, 0.1).toFixed(2));
      }
      if (words) {
        if (!texts[i]) {
          texts[i] = labels.appendChild(document.createElementNS(SVG, "text"));
          texts[i].setAttribute("y", top(i) + ROW - 5);
          if (hits && hits.has(i)) texts[i].classList.add("hit");
        }
        texts[i].setAttribute("x", (x + 4).toFixed(2));
        texts[i].textContent = words;
      } else if (texts[i]) {
        texts[i].remove();
        texts[i] = null;
      }
    }
  }
  function fit() {
    const there = isPage ? svg.parentElement.clientWidth : document.documentElement.clientWidth || window.innerWidth;
    width = Math.max(there || data.width, 320);
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${data.height}`);
    svg.querySelector("#tools").setAttribute("width", width - 20);
    layout();
  }
  function zoom(i) {
    zoomed = i;
    layout();
    reset.disabled = i === 0 && !hits;
    svg.dispatchEvent(new CustomEvent("flame-zoom", { detail: i }));
  }

  // ---- search ----
  function matcher(words) {
    const pattern = words.length > 2 && words.startsWith("/") && words.endsWith("/") ? words.slice(1, -1) : null;
    if (pattern !== null) {
      try { const expression = new RegExp(pattern, "i"); return text => expression.test(text); } catch { return null; }
    }
    const plain = words.toLowerCase();
    return text => text.toLowerCase().includes(plain);
  }
  function search(words) {
    const matches = words ? matcher(words) : null;
    hits = matches ? new Set() : null;
    let covered = 0;
    const inHit = new Array(size).fill(false), known = new Map();
    for (let i = 1; i < size && matches; i++) {
      if (!known.has(frame[i])) known.set(frame[i], matches(about(i).label) || matches(about(i).place));
      inHit[i] = inHit[parent[i]];
      if (!known.get(frame[i])) continue;
      hits.add(i);
      if (!inHit[i]) covered += total[i];
      inHit[i] = true;
    }
    svg.classList.toggle("searched", Boolean(hits));
    for (let i = 0; i < size; i++) {
      const hit = Boolean(hits && hits.has(i));
      rects[i].classList.toggle("hit", hit);
      if (texts[i]) texts[i].classList.toggle("hit", hit);
    }
    found.textContent = words && !matches ? "no regular expression" :
      hits ? `${percent(covered / whole)} · ${amount(covered)} · ${counted(hits.size, "frame")}` : "";
    svg.dataset.searched = words;
    reset.disabled = zoomed === 0 && !hits;
  }

  // ---- tools and tooltip ----
  const element = (tag, attributes = {}, words = "") => {
    const made = document.createElementNS(XHTML, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = words;
    return made;
  };
  const tools = element("div", { class: "flame-tools" });
  const field = element("input", { type: "search", placeholder: "search: words or /regex/", "aria-label": "search frames", title: "key /", spellcheck: "false" });
  const found = element("span", { class: "found", role: "status", "aria-live": "polite" });
  const reset = element("button", { type: "button", title: "key Escape" }, "reset");
  reset.disabled = true;
  tools.append(field, reset, found);
  svg.querySelector("#tools").append(tools);
  const tip = element("div", { class: "flame-tip", role: "tooltip", id: "flame-tip" });
  const over = document.createElementNS(SVG, "foreignObject");
  over.setAttribute("style", "pointer-events: none; display: none; overflow: visible");
  over.append(tip);
  svg.append(over);
  function words(i) {
    tip.replaceChildren(element("b", {}, name(i)));
    for (const line of lines(i)) {
      const row = element("div", {}, line);
      if (tip.children.length === 1) row.prepend(element("i", { class: rects[i].classList[0] }));
      tip.append(row);
    }
  }
  function showTip(i, x, y) {
    words(i);
    over.style.display = "";
    over.setAttribute("width", Math.min(560, width));
    over.setAttribute("height", 200);
    const box = tip.getBoundingClientRect(), low = isPage ? data.height : Math.max(window.innerHeight + window.scrollY, 200);
    over.setAttribute("x", Math.max(0, Math.min(x + 14, width - box.width - 6)));
    over.setAttribute("y", y + 18 + box.height > low ? Math.max(0, y - box.height - 10) : y + 18);
  }
  const hideTip = () => { over.style.display = "none"; };
  function place(event) {
    const box = svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
  function choose(i, focus) {
    rects[chosen].removeAttribute("tabindex");
    rects[chosen].classList.remove("chosen");
    chosen = i;
    const rect = rects[i];
    rect.setAttribute("tabindex", "0");
    rect.setAttribute("role", "treeitem");
    rect.setAttribute("aria-level", depth[i] + 1);
    rect.setAttribute("aria-label", [name(i), ...lines(i)].join("; "));
    if (focus) {
      rect.classList.add("chosen");
      rect.focus({ preventScroll: true });
      rect.scrollIntoView({ block: "nearest" });
    }
    svg.dispatchEvent(new CustomEvent("flame-frame", { detail: { label: name(i), frame: frame[i], lines: lines(i), node: i } }));
  }

  // ---- mouse and keys ----
  const number = new Map(rects.map((rect, i) => [rect, i]));
  const frames = svg.querySelector("#frames");
  frames.addEventListener("mousemove", event => {
    if (number.has(event.target)) showTip(number.get(event.target), ...place(event));
  });
  frames.addEventListener("mouseleave", hideTip);
  frames.addEventListener("mouseout", event => { if (!number.has(event.relatedTarget)) hideTip(); });
  frames.addEventListener("click", event => {
    if (!number.has(event.target)) return;
    choose(number.get(event.target), true);
    zoom(number.get(event.target));
    words(zoomed);
  });
  const shown = i => rects[i].style.display !== "none";
  function beside(i, step) {
    const all = (i ? children[parent[i]] : [0]).filter(shown);
    return all[all.indexOf(i) + step];
  }
  function again() {
    clearTimeout(waiting);
    field.value = "";
    field.blur();
    search("");
    zoom(0);
    hideTip();
  }
  frames.addEventListener("keydown", event => {
    const inwards = children[chosen].find(shown), outwards = parent[chosen];
    const [down, up] = data.flipped ? [outwards, inwards] : [inwards, outwards];
    const go = { ArrowDown: down, ArrowUp: up, ArrowLeft: beside(chosen, -1), ArrowRight: beside(chosen, 1), Home: 0 }[event.key];
    if (event.key === "Enter" || event.key === " ") zoom(chosen);
    else if (!event.key.startsWith("Arrow") && event.key !== "Home") return;
    else if (go !== undefined && go >= 0) {
      choose(go, true);
      const rect = rects[go];
      showTip(go, Number(rect.getAttribute("x")), Number(rect.getAttribute("y")));
    }
    event.preventDefault();
  });
  frames.addEventListener("focusout", hideTip);
  document.addEventListener("keydown", event => {
    const typing = /^(input|textarea|select)$/i.test(event.target.tagName || "");
    if (event.key === "Escape") again();
    else if ((event.key === "/" && !typing) || (event.key === "f" && (event.ctrlKey || event.metaKey) && document.activeElement !== field)) {
      field.focus();
      field.select();
      event.preventDefault();
    }
  });
  field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => search(field.value.trim()), 80); });
  reset.addEventListener("click", again);
  svg.addEventListener("flame-search", event => { field.value = event.detail; search(event.detail); });

  // ---- start ----
  for (const text of [...labels.children]) text.remove();
  const probe = labels.appendChild(document.createElementNS(SVG, "text"));
  probe.textContent = "m".repeat(50);
  letter = probe.getComputedTextLength() / 50 || letter;
  probe.remove();
  choose(0, false);
  fit();
  window.addEventListener("resize", fit);
  if (data.flipped) rects[0].scrollIntoView({ block: "nearest" });
  svg.classList.add("ready");
})();
