// Search over the names of spans: words, all of which a name has to contain, or a /regular expression/.

import type { SpanStore } from "../data/span_store";

export interface Found {
  error: string; // why the words cannot be understood
  names: { name: string; count: number }[]; // most first
  count: number;
  classes: Uint8Array; // which classes are hits
}

export function searched({ about, counts }: SpanStore, words: string): Found | null {
  if (!words.trim()) return null;
  const { classes, names } = about;
  const none = new Uint8Array(classes.length);
  const test = testOf(words.trim());
  if (typeof test === "string") return { error: test, names: [], count: 0, classes: none };
  const isHit = names.map(test);
  const byName = new Map<string, number>();
  let count = 0;
  const hits = none.map((_, at) => {
    const name = classes[at][0];
    if (!isHit[name]) return 0;
    count += counts[at];
    byName.set(names[name], (byName.get(names[name]) ?? 0) + counts[at]);
    return 1;
  });
  const found = [...byName].map(([name, of]) => ({ name, count: of })).filter(one => one.count);
  found.sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
  return { error: "", names: found, count, classes: hits };
}

function testOf(words: string): ((name: string) => boolean) | string {
  const pattern = /^\/(.+)\/?$/.exec(words);
  if (!pattern) {
    const parts = words.toLowerCase().split(/\s+/);
    return name => {
      const lower = name.toLowerCase();
      return parts.every(part => lower.includes(part));
    };
  }
  try {
    const expression = new RegExp(pattern[1].replace(/\/$/, ""), "i");
    return name => expression.test(name);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
