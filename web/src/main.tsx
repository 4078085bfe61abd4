// The page of a report. Everything it needs is in the file.

import { render } from "preact";
import { inPage, Recording } from "./data/recording";
import { PAGES } from "./pages";
import { followAddress } from "./state/state";
import { App } from "./ui/app";
import "./style.css";

const OLD_BROWSER =
  "This report needs a browser that can unpack its data: Chrome or Edge 103, Firefox 113, Safari 16.4, or a newer one.";

function start(holder: HTMLElement): void {
  if (!hasDecompression()) {
    holder.textContent = OLD_BROWSER;
    return;
  }
  const recording = new Recording(inPage());
  followAddress(recording.head.pages.map(({ name }) => name).filter(name => name in PAGES));
  holder.textContent = "";
  render(<App recording={recording} />, holder);
}

function hasDecompression(): boolean {
  try {
    return Boolean(new DecompressionStream("deflate-raw"));
  } catch {
    return false;
  }
}

start(document.getElementById("page")!);
