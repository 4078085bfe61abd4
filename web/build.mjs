// Builds page.js and page.css of the report, and viewer.js, page.js and their styles of the files of
// `layerscope flame`, from the sources here: `python3 dev.py web`.
//
// The same sources give the same bytes. Each script begins with a hash of them, which a test compares,
// so that nobody changes one and forgets the other.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const SHOW = join(HERE, "..", "src", "layerscope", "show");
// Into the package, or into another folder to compare.
const OUT = process.argv[2] ?? join(SHOW, "report");
const FLAME_OUT = process.argv[2] ? join(OUT, "flame") : join(SHOW, "flame");
// What the bundle is made of, beside everything in src/.
const SETTINGS = ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"];

function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

function hashOfSources() {
  const files = [...SETTINGS.map(name => join(HERE, name)), ...filesBelow(join(HERE, "src"))];
  const named = files.map(path => [relative(HERE, path).split(sep).join("/"), path]).sort();
  const hash = createHash("sha256");
  for (const [name, path] of named) hash.update(name).update("\0").update(readFileSync(path)).update("\0");
  return hash.digest("hex");
}

// A style sheet says dark colours once, as `@dark { ... }`. They are those of who has chosen them, and of
// who has chosen nothing where the system asks for them; only on the screen, as paper is light.
const DARK = /^@dark \{\n(.*?)^\}\n/gms;

const darkColours = {
  name: "dark-colours",
  setup({ onLoad }) {
    onLoad({ filter: /\.css$/ }, ({ path }) => {
      const contents = readFileSync(path, "utf8").replace(DARK, (_, colours) =>
        `@media screen and (prefers-color-scheme: dark) { :root:not([data-theme="light"]) {\n${colours}} }
        @media screen { :root[data-theme="dark"] {\n${colours}} }\n`);
      return { contents, loader: "css" };
    });
  },
};

async function bundle(entries, out) {
  const result = await build({
    entryPoints: entries,
    bundle: true,
    minify: true,
    write: false,
    outdir: out,
    format: "iife",
    target: "es2022",
    charset: "ascii",
    legalComments: "none",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
    plugins: [darkColours],
  });
  mkdirSync(out, { recursive: true });
  for (const file of result.outputFiles) {
    const isScript = file.path.endsWith(".js");
    writeFileSync(file.path, isScript ? `/* sources ${HASH} */\n${forXml(file.text)}` : file.text);
  }
}

// A script in an SVG stands in a CDATA section, which these characters would end.
function forXml(script) {
  return script.replaceAll("]]>", "]] >");
}

// The licences of the libraries in the bundle, beside it.
function writeLicences() {
  const libraries = Object.keys(JSON.parse(readFileSync(join(HERE, "package.json"), "utf8")).dependencies);
  const bundled = [...libraries, "@preact/signals-core"].sort().map(name => {
    const folder = join(HERE, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
  });
  writeFileSync(join(OUT, "page.licenses.txt"), bundled.join("\n\n"));
}

const HASH = hashOfSources();
const source = (...parts) => join(HERE, "src", ...parts);
await bundle({ page: source("main.tsx") }, OUT);
await bundle({ viewer: source("flame", "file.ts"), page: source("flame", "panel.ts") }, FLAME_OUT);
writeLicences();
