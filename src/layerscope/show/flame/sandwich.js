"use strict";
// The callers and the callees of one function, merged over all places where it is called: a tree with the function as its
// root. `side` of a node is 1 where it lies in what stands inside of the function in the picture, -1 where around it.
// A stack in which the function calls itself counts once: its outermost call has the callers, its innermost the callees.
function sandwich(nodes, wanted) {
  const columns = ["total", "own", "count", "change", "count_before"].filter(name => nodes[name]);
  const size = nodes.frame.length, made = { parent: [-1], frame: [wanted], depth: [0], side: [0], start: [0] };
  for (const name of columns) made[name] = [0];
  const below = [new Map()];
  function child(of, frame, side) {
    const key = side * (frame + 1);
    if (!below[of].has(key)) {
      below[of].set(key, made.parent.length);
      below.push(new Map());
      for (const [name, value] of Object.entries({ parent: of, frame, depth: made.depth[of] + 1, side, start: 0 })) made[name].push(value);
      for (const name of columns) made[name].push(0);
    }
    return below[of].get(key);
  }
  // By node: whether a call of the function is around it, and the weights of the outermost calls inside of it.
  const isInside = new Array(size).fill(false), calls = Object.fromEntries(columns.map(name => [name, new Array(size).fill(0)]));
  for (let i = 1; i < size; i++) isInside[i] = nodes.frame[nodes.parent[i]] === wanted || isInside[nodes.parent[i]];
  for (let i = size - 1; i > 0; i--) for (const name of columns) {
    calls[name][nodes.parent[i]] += nodes.frame[i] === wanted ? nodes[name][i] : calls[name][i];
  }
  const place = new Array(size).fill(-1);
  let places = 0;
  for (let i = 1; i < size; i++) {
    if (!nodes.total[i]) continue;
    if (nodes.frame[i] === wanted) {
      place[i] = 0;
      made.own[0] += nodes.own[i];
      if (isInside[i]) continue;
      places++;
      for (const name of columns) if (name !== "own") made[name][0] += nodes[name][i];
      for (let at = 0, j = nodes.parent[i]; j > 0; j = nodes.parent[j]) {
        at = child(at, nodes.frame[j], -1);
        for (const name of columns) if (name !== "own") made[name][at] += nodes[name][i];
      }
    } else if (place[nodes.parent[i]] >= 0 && nodes.total[i] > calls.total[i]) {
      place[i] = child(place[nodes.parent[i]], nodes.frame[i], 1);
      for (const name of columns) made[name][place[i]] += nodes[name][i] - (name === "own" ? 0 : calls[name][i]);
    }
  }
  // Beside each other, the heaviest first.
  for (let i = 0; i < made.parent.length; i++) {
    const from = { 1: made.start[i], "-1": made.start[i] };
    for (const j of [...below[i].values()].sort((a, b) => made.total[b] - made.total[a])) {
      made.start[j] = from[made.side[j]];
      from[made.side[j]] += made.total[j];
    }
  }
  return { ...made, places };
}
