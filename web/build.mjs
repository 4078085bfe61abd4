// Builds page.js and page.css of the report from the sources here: `python3 dev.py web`.
//
// The same sources give the same bytes. The script begins with a hash of them, which a test compares,
// so that nobody changes one and forgets the other.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = process.argv[2] ?? join(HERE, "..", "src", "layerscope", "show", "report");
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

const result = await build({
  entryPoints: { page: join(HERE, "src", "main.tsx") },
  bundle: true,
  minify: true,
  write: false,
  outdir: OUT,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
for (const file of result.outputFiles) {
  const banner = file.path.endsWith(".js") ? `/* sources ${hashOfSources()} */\n` : "";
  writeFileSync(file.path, banner + file.text);
}

// The licences of the libraries in the bundle, beside it.
const LIBRARIES = Object.keys(JSON.parse(readFileSync(join(HERE, "package.json"), "utf8")).dependencies);
const bundled = [...LIBRARIES, "@preact/signals-core"].sort().map(name => {
  const folder = join(HERE, "node_modules", name);
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
});
writeFileSync(join(OUT, "page.licenses.txt"), bundled.join("\n\n"));
