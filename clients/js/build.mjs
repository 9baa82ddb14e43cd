// The script of the join page, as it is shipped with the Python package: `npm run bundle`.
import { build } from 'esbuild';
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

export const options = {
  absWorkingDir: folder,
  entryPoints: ['src/page/main.ts'],
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  charset: 'ascii',
  mangleProps: /^_/, // what @hpke/core keeps to itself
  plugins: [withoutUnused],
  legalComments: 'none',
  logLevel: 'warning',
};

await build({ ...options, outfile: process.argv[2] ?? `${folder}../../src/metricshuffle/report/static/client.js` });
