// How the user has arranged the timeline. It lives in the address with everything else.

import { minor, own } from "../state/state";
import type { Arrangement } from "./rows";

export function setting(key: string): string {
  return own.value[key] ?? "";
}

export function set(key: string, value: string): void {
  minor(() => {
    own.value = { ...own.value, [key]: value };
  });
}

export function arrangement(): Arrangement {
  return {
    toggled: keys("toggled"),
    pinned: keys("pinned"),
    moved: new Map([...keys("moved")].map(one => [one.split(":")[0], Number(one.split(":")[1]) || 0])),
    words: setting("rows"),
    isApart: setting("apart") === "1",
  };
}

const keys = (of: string) => new Set(setting(of).split(",").filter(Boolean));

// Open what is closed, pin what is not pinned, and the other way round.
export function toggle(of: "toggled" | "pinned", key: string): void {
  const now = keys(of);
  if (!now.delete(key)) now.add(key);
  set(of, [...now].join(","));
}

export function move(key: string, place: number | null): void {
  if (place === null) return;
  const now = [...keys("moved")].filter(one => !one.startsWith(`${key}:`));
  set("moved", [...now, `${key}:${Number(place.toFixed(6))}`].join(","));
}
