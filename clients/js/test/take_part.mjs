// Takes part once: node take_part.mjs ADDRESS DIGEST OUTBOX VALUE; exit code 0 if the report is stored. For `metricshuffle conform client`.
import { Client } from '../dist/index.js';
import { FolderOutbox } from '../dist/node.js';

const [address, digest, outbox, value] = process.argv.slice(2);
try {
  const client = await Client.join(address, digest, { outbox: new FolderOutbox(outbox), patience: 20_000 });
  console.log((await client.submit(Number(value))).sentence);
} catch (error) {
  console.error(error.message);
  process.exitCode = 2;
}
