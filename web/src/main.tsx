// The page of a report. Everything it needs is in the file, or at the server that it came from.

import { render } from "preact";
import { Recording, source } from "./data/recording";
import { PAGES } from "./pages";
import { followAddress } from "./state/state";
import { App } from "./ui/app";
import { sentence } from "./ui/loading";
import "./style.css";

const OLD_BROWSER =
  "This report needs a browser that can unpack its data: Chrome or Edge 103, Firefox 113, Safari 16.4, or a newer one.";

async function start(holder: HTMLElement): Promise<void> {
  if (!hasDecompression()) {
    holder.textContent = OLD_BROWSER;
    return;
  }
  try {
    const recording = new Recording(await source());
    followAddress(recording.head.pages.map(({ name }) => name).filter(name => name in PAGES));
    holder.textContent = "";
    render(<App recording={recording} />, holder);
  } catch (error) {
    holder.setAttribute("role", "alert");
    holder.textContent = `The report cannot be read: ${sentence(error)}.`;
  }
}

function hasDecompression(): boolean {
  try {
    return Boolean(new DecompressionStream("deflate-raw"));
  } catch {
    return false;
  }
}

void start(document.getElementById("page")!);
