"use strict";
// Zoom, search, tooltips and keyboard of a flame graph. Its frames are the rects in #frames, in the order of the data:
// a parent before its children. Weights are whole numbers; places are parts of the whole. What is shown in their place
// while somebody looks at the callers and callees of one function is made by sandwich.js.
(() => {
  const svg = document.getElementById("layerscope-flame");
  const data = JSON.parse(svg.querySelector("#flame-data").textContent);
  const picture = { ...data.nodes, row: data.nodes.depth, rows: data.rows, rects: [...svg.querySelectorAll("#frames rect")] };
  let { parent, start, total, own, count, frame, depth, row, rows, rects, gone = null } = picture, side = null;
  const frames = svg.querySelector("#frames"), labels = svg.querySelector("#labels"), notes = svg.querySelector("#notes");
  const whole = data.whole || 1, samples = data.nodes.count[0], ROW = data.row, TOP = data.top;
  const SVG = "http://www.w3.org/2000/svg", XHTML = "http://www.w3.org/1999/xhtml";
  const isPage = svg !== document.documentElement;
  // What only the recording before has is laid out by its weight there.
  const isGone = i => Boolean(gone && gone[i]);
  const weight = i => isGone(i) ? shownTree.before[i] : total[i];
  const end = i => start[i] + weight(i);
  const top = i => TOP + (data.flipped ? rows - 1 - row[i] : row[i]) * ROW;
  let shownTree = picture, size = 0, texts = [], children = [], number = new Map();
  let width = data.width, height = data.height, zoomed = 0, chosen = 0, hits = null, letter = 7.25, waiting = 0, left = null;

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
    if (isGone(i)) {
      said.push(`gone: ${amount(-shownTree.change[i])} per ${data.compared.per} before, nothing now`);
      if (!shownTree.sure[i]) said.push("no more than chance or nothing");
      return said;
    }
    if (side && i) said.push(`${amount(total[i])} of ${name(0)}: ${percent(total[i] / total[0])} of its time, ${percent(total[i] / whole)} of all`);
    else said.push(`${amount(total[i])}, ${percent(total[i] / whole)} of all` + (!side && i && zoomed && total[i] <= total[zoomed] ? `, ${percent(total[i] / total[zoomed])} of what is shown` : "") + `; its own ${amount(own[i])}`);
    if (data.sampled && (i || side)) {
      const [low, high] = interval(total[i] / whole, samples);
      said.push(`${counted(count[i], "sample")}: ${percent(low)} to ${percent(high)}${side ? " of all" : ""} with 95 %`);
    } else if (!data.sampled && (i || side)) said.push(`${counted(count[i], "span")} in it`);
    if (hot && hot.length) said.push("lines " + hot.map(([line, share]) => `${line} (${percent(share)})`).join(", "));
    if (data.compared) {
      const now = total[i] / data.compared.units, change = shownTree.change[i], before = now - change;
      const part = before > 0 ? ` (${signed(change, (100 * change / before).toFixed(1))} %)` : " (new)";
      said.push(`per ${data.compared.per}: ${amount(now)}, before ${amount(before)}, ${signed(change, amount(change))}${part}`);
      if (!shownTree.sure[i]) said.push("no more than chance or nothing");
    }
    return said;
  }
  const name = i => about(i).label;

  // ---- what is shown: the picture, or the callers and callees of a function ----
  function show(tree) {
    rects[chosen].removeAttribute("tabindex");
    rects[chosen].classList.remove("chosen");
    if (shownTree !== tree) frames.replaceChildren(...tree.rects);
    for (const text of texts) if (text) text.remove();
    ({ parent, start, total, own, count, frame, depth, row, rows, rects, side = null, gone = null } = shownTree = tree);
    size = rects.length;
    texts = new Array(size).fill(null);
    children = Array.from({ length: size }, () => []);
    for (let i = 1; i < size; i++) children[parent[i]].push(i);
    for (const below of children) below.sort((a, b) => isGone(a) - isGone(b) || start[a] - start[b]);
    number = new Map(rects.map((rect, i) => [rect, i]));
    const more = (rows - data.rows) * ROW;
    height = data.height + more;
    notes.setAttribute("transform", `translate(0 ${more})`);
    svg.setAttribute("height", height);
    hits = null;
    zoomed = chosen = 0;
  }
  // How much of the larger weight a frame changed by, and whether that is more than the chance of sampling explains.
  function changed(tree, i) {
    const { units, units_before, steps, sure } = data.compared;
    const now = tree.total[i] / units, change = tree.change[i], before = now - change;
    const error = data.sampled ? sure * Math.hypot(now / Math.sqrt(Math.max(tree.count[i], 1)), before / Math.sqrt(Math.max(tree.count_before[i], 1))) : 0;
    if (!change || Math.abs(change) <= error) return [false, "same"];
    const part = Math.abs(change) / Math.max(now, before);
    return [true, (change > 0 ? "grew" : "shrank") + (1 + steps.filter(step => part >= step).length)];
  }
  const canBeShown = i => frame[i] > 0 && total[i] > 0;
  function showSandwich(wanted) {
    const tree = sandwich(data.nodes, wanted), places = tree.frame.map((_, i) => i);
    const isCaller = i => tree.side[i] === (data.inverted ? 1 : -1);
    const deepest = of => Math.max(0, ...tree.depth.filter((_, i) => i && isCaller(i) === of));
    const above = deepest(true);
    tree.row = tree.depth.map((levels, i) => above + (isCaller(i) ? -levels : levels));
    tree.rows = above + 1 + deepest(false);
    const changes = data.compared ? places.map(i => changed(tree, i)) : null;
    if (changes) tree.sure = changes.map(([sure]) => sure);
    const colours = new Map(data.nodes.frame.map((used, i) => [used, picture.rects[i].dataset.colour]));
    left = left || [zoomed, chosen];
    tree.rects = places.map(i => {
      const rect = document.createElementNS(SVG, "rect"), colour = changes ? changes[i][1] : colours.get(tree.frame[i]);
      rect.setAttribute("class", colour);
      rect.setAttribute("height", ROW);
      return rect;
    });
    show(tree);
    for (let i = 0; i < size; i++) rects[i].setAttribute("y", top(i));
    svg.dataset.sandwich = name(0);
    begin(0, 0);
  }
  function showPicture() {
    const [was, of] = left;
    left = null;
    show(picture);
    delete svg.dataset.sandwich;
    begin(was, of);
  }
  function begin(at, of) {
    field.value = "";
    search("");
    fit();
    zoom(at);
    choose(of, true);
    hideTip();
  }

  // ---- places ----
  // The longest form of a label that there is room for; the shortest is cut.
  function fitted(i, px) {
    const room = Math.floor((px - 6) / letter);
    if (room < 3) return "";
    const forms = [name(i), ...(about(i).shorter || [])];
    const shortest = forms[forms.length - 1];
    return forms.find(words => words.length <= room) || shortest.slice(0, room - 1) + "…";
  }
  function layout() {
    const scale = width / (weight(zoomed) || 1), from = start[zoomed], ofGone = isGone(zoomed);
    const above = new Set(), begins = new Array(size).fill(0), widths = new Array(size).fill(0);
    for (let i = parent[zoomed]; i >= 0; i = parent[i]) above.add(i);
    for (let i = 0; i < size; i++) {
      const around = above.has(i);
      const inside = isGone(i) === ofGone && depth[i] >= depth[zoomed] && (!zoomed || !side || side[i] === side[zoomed]) && start[i] >= from && end(i) <= end(zoomed) && (depth[i] > depth[zoomed] || i === zoomed);
      let px = around ? width : weight(i) * scale, x = around ? 0 : (start[i] - from) * scale;
      let shown = around || (inside && px >= 0.1);
      if (isGone(i) && !ofGone) [x, px, shown] = atTheEnd(i, begins, widths);
      if (inside) [begins[i], widths[i]] = [x, px];
      const rect = rects[i];
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
  // What is gone stands at the end of its caller, where that is shown.
  function atTheEnd(i, begins, widths) {
    const { px, least, part } = data.gone, caller = parent[i];
    if (isGone(caller)) return [0, 0, false];
    const all = children[caller].filter(isGone), each = Math.min(px, part * widths[caller] / all.length);
    return [begins[caller] + widths[caller] - each * (all.length - all.indexOf(i)), each, each >= least];
  }
  function fit() {
    const there = isPage ? svg.parentElement.clientWidth : document.documentElement.clientWidth || window.innerWidth;
    width = Math.max(there || data.width, 320);
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.querySelector("#tools").setAttribute("width", width - 20);
    layout();
  }
  function zoom(i) {
    zoomed = i;
    layout();
    reset.disabled = i === 0 && !hits && !side;
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
    let covered = 0, coveredGone = 0;
    const inHit = new Array(size).fill(false), known = new Map();
    for (let i = 1; i < size && matches; i++) {
      if (!known.has(frame[i])) known.set(frame[i], matches(about(i).label) || matches(about(i).place));
      inHit[i] = inHit[parent[i]];
      if (!known.get(frame[i])) continue;
      hits.add(i);
      if (!inHit[i]) covered += total[i];
      if (!inHit[i] && isGone(i)) coveredGone -= shownTree.change[i];
      inHit[i] = true;
    }
    svg.classList.toggle("searched", Boolean(hits));
    // What is gone can be seen where the outermost of it is.
    const seen = new Set(hits || []);
    for (const hit of hits || []) for (let i = hit; isGone(i); i = parent[i]) seen.add(i);
    for (let i = 0; i < size; i++) {
      const hit = seen.has(i);
      rects[i].classList.toggle("hit", hit);
      if (texts[i]) texts[i].classList.toggle("hit", hit);
    }
    // Callers and callees are of the same time: it is not counted twice.
    const lost = coveredGone ? ` · gone: ${amount(coveredGone)} per ${data.compared.per}` : "";
    const share = side ? "" : `${percent(covered / whole)} · ${amount(covered)} · `;
    found.textContent = words && !matches ? "no regular expression" : hits ? share + counted(hits.size, "frame") + lost : side ? ofSandwich() : "";
    svg.dataset.searched = words;
    reset.disabled = zoomed === 0 && !hits && !side;
  }
  function ofSandwich() {
    const thin = data.left_out ? "; without frames too thin to be drawn" : "";
    const [above, below] = data.flipped ? ["callees", "callers"] : ["callers", "callees"];
    return `${name(0)}: ${amount(total[0])} in ${counted(shownTree.places, "place")}, ${above} above, ${below} below${thin}`;
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
  const callers = element("button", { type: "button", title: "of the chosen frame, wherever it is called: key s" }, "callers and callees");
  reset.disabled = callers.disabled = true;
  tools.append(field, reset, callers, found);
  svg.querySelector("#tools").append(tools);
  const tip = element("div", { class: "flame-tip", role: "tooltip", id: "flame-tip" });
  const over = document.createElementNS(SVG, "foreignObject");
  over.setAttribute("style", "pointer-events: none; display: none; overflow: visible");
  over.append(tip);
  svg.append(over);
  function words(i) {
    tip.replaceChildren(element("b", {}, name(i)));
    for (const line of lines(i)) {
      const inTip = element("div", {}, line);
      if (tip.children.length === 1) inTip.prepend(element("i", { class: rects[i].classList[0] }));
      tip.append(inTip);
    }
  }
  function showTip(i, x, y) {
    words(i);
    over.style.display = "";
    over.setAttribute("width", Math.min(560, width));
    over.setAttribute("height", 200);
    const box = tip.getBoundingClientRect(), low = isPage ? height : Math.max(window.innerHeight + window.scrollY, 200);
    over.setAttribute("x", Math.max(0, Math.min(x + 14, width - box.width - 6)));
    over.setAttribute("y", y + 18 + box.height > low ? Math.max(0, y - box.height - 10) : y + 18);
  }
  const hideTip = () => { over.style.display = "none"; };
  function place(event) {
    const box = svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
  function choose(i, focus) {
    callers.disabled = !canBeShown(i);
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
    const all = (i ? children[parent[i]] : [0]).filter(j => shown(j) && (!side || side[j] === side[i]));
    return all[all.indexOf(i) + step];
  }
  function again() {
    clearTimeout(waiting);
    if (side) {
      showPicture();
      return;
    }
    field.value = "";
    field.blur();
    search("");
    zoom(0);
    hideTip();
  }
  frames.addEventListener("keydown", event => {
    const beyond = [parent[chosen], ...children[chosen].filter(shown)].filter(i => i >= 0);
    const down = beyond.find(i => top(i) > top(chosen)), up = beyond.find(i => top(i) < top(chosen));
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
    const plain = !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.key === "Escape") again();
    else if (event.key === "s" && plain && canBeShown(chosen)) showSandwich(frame[chosen]);
    else if ((event.key === "/" && !typing) || (event.key === "f" && (event.ctrlKey || event.metaKey) && document.activeElement !== field)) {
      field.focus();
      field.select();
      event.preventDefault();
    }
  });
  field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => search(field.value.trim()), 80); });
  reset.addEventListener("click", again);
  callers.addEventListener("click", () => showSandwich(frame[chosen]));
  svg.addEventListener("flame-search", event => {
    field.value = event.detail;
    search(event.detail);
    const called = [...(hits || [])].filter(i => name(i) === event.detail).sort((a, b) => total[b] - total[a]);
    if (called.length) choose(called[0], false);
  });

  // ---- start ----
  for (const text of [...labels.children]) text.remove();
  for (const rect of rects) rect.dataset.colour = rect.getAttribute("class");
  show(picture);
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
