// The scripts of the join page, as they are shipped with the Python package: `npm run bundle`.
import { build } from 'esbuild';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const folder = fileURLToPath(new URL('.', import.meta.url));

/** @hpke says that its files do nothing when they are loaded, but where esbuild does not look: those of which nothing is used are left out. */
const withoutUnused = {
  name: 'without-unused',
  setup(building) {
    building.onResolve({ filter: /^(\.|@hpke\/)/ }, async ({ path, pluginData, ...asked }) => {
      if (pluginData === withoutUnused || !asked.importer.includes('/@hpke/')) return undefined;
      return { ...(await building.resolve(path, { ...asked, pluginData: withoutUnused })), sideEffects: false };
    });
  },
};

/**
 * @hpke is compiled for engines older than those that have X25519: the same in today's words is a sixth shorter. Each pair has what
 * stands there and the shorter statement of the same; `npm run bundle` stops if any of it stands nowhere, as in another version.
 */
const SHORTER = [
  [/Object\.defineProperty\(this, "(\w+)", \{\s*enumerable: true,\s*configurable: true,\s*writable: true,\s*value: (.*?)\s*\}\);/g, 'this.$1 = $2;'],
  [/^var __classPrivateField[GS]et = .*?\n\};$/gms, ''],
  [/__classPrivateFieldGet\(this, (\w+), "f"\)/g, '$1.get(this)'],
  [/__classPrivateFieldSet\(this, (\w+), (.*), "f"\)/g, '$1.set(this, $2)'],
  [/createMergeProxy\(globalThis, dntGlobals\)/g, 'globalThis'],
  [/ +\/\/ Node\.js <= v18\n +try \{[^}]*\} = await import\("crypto"\)[^}]*\}\n +catch \(_?e\) \{[^}]*\}\n/g, ''],
];
const found = new Set();

const withoutDetours = {
  name: 'without-detours',
  setup(building) {
    building.onLoad({ filter: /@hpke.(core|common).*\.js$/ }, async ({ path }) => {
      let contents = await readFile(path, 'utf8');
      for (const [detour, shorter] of SHORTER) {
        if (contents.search(detour) >= 0) found.add(detour);
        contents = contents.replace(detour, shorter);
      }
      return { contents };
    });
    building.onEnd(() => ({ errors: SHORTER.filter(([detour]) => !found.has(detour)).map(([detour]) => ({ text: `@hpke has nothing like ${detour}` })) }));
  },
};

export const options = {
  absWorkingDir: folder,
  entryPoints: ['src/page/main.ts'],
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  charset: 'ascii',
  mangleProps: /^_/, // what @hpke/core keeps to itself
  plugins: [withoutUnused, withoutDetours],
  legalComments: 'none',
  logLevel: 'warning',
};

/** The same page for collections with tokens: its client is that of src/tokens.ts. */
const withTokens = {
  name: 'with-tokens',
  setup(building) {
    const path = fileURLToPath(new URL('src/tokens.ts', import.meta.url));
    building.onResolve({ filter: /^\.\.\/client\.js$/ }, ({ importer }) => (importer.endsWith('main.ts') ? { path } : undefined));
  },
};

const outfile = process.argv[2] ?? `${folder}../../src/metricshuffle/report/static/client.js`;
await build({ ...options, outfile });
await build({ ...options, plugins: [withTokens, ...options.plugins], outfile: outfile.replace(/\.js$/, '-tokens.js') });
await build({ ...options, plugins: [], entryPoints: ['src/page/budget.ts'], outfile: outfile.replace(/client\.js$/, 'budget.js') });
