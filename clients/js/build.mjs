// The script of the join page, as it is shipped with the Python package: `npm run bundle`.
import { build } from 'esbuild';
import { fileURLToPath } from 'node:url';

const folder = fileURLToPath(new URL('.', import.meta.url));

export const options = {
  absWorkingDir: folder,
  entryPoints: ['src/page/main.ts'],
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  charset: 'ascii',
  mangleProps: /^_/, // what @hpke/core keeps to itself
  legalComments: 'none',
  logLevel: 'warning',
};

await build({ ...options, outfile: process.argv[2] ?? `${folder}../../src/metricshuffle/pages/static/client.js` });
