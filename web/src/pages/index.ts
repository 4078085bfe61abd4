// The pages by name: one file each. Their order and titles come with the report (show/report/pages).

import type { ComponentType } from "preact";
import type { Recording } from "../data/recording";
import { Compare } from "./compare";
import { Findings } from "./findings";
import { Flame } from "./flame";
import { Machine } from "./machine";
import { Modules } from "./modules";
import { Overview } from "./overview";
import { Tables } from "./tables";
import { Timeline } from "./timeline";

export type Page = ComponentType<{ recording: Recording }>;

export const PAGES: Record<string, Page> = {
  overview: Overview,
  findings: Findings,
  timeline: Timeline,
  flame: Flame,
  tables: Tables,
  modules: Modules,
  machine: Machine,
  compare: Compare,
};
