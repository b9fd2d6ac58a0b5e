// node-redis with its time series, against the port that is given.
const assert = require("node:assert");
const { createClient } = require("redis");

async function main() {
  const client = createClient({ url: `redis://127.0.0.1:${process.argv[2]}` });
  await client.connect();
  await client.ts.create("a", { RETENTION: 86400000, LABELS: { room: "1" } });
  await client.ts.add("a", 1000, 1.5);
  await client.ts.mAdd([
    { key: "a", timestamp: 2000, value: 2.5 },
    { key: "a", timestamp: 61000, value: 4 },
  ]);
  const range = await client.ts.range("a", "-", "+", { AGGREGATION: { type: "AVG", timeBucket: 60000 } });
  assert.deepStrictEqual(JSON.parse(JSON.stringify(range)), [
    { timestamp: 0, value: 2 },
    { timestamp: 60000, value: 4 },
  ]);
  const info = await client.ts.info("a");
  assert.strictEqual(info.totalSamples, 3);
  const found = await client.ts.mGet("room=1");
  assert.ok(JSON.stringify(found).includes("4"));
  const [, second] = await client.multi().ts.add("a", 70000, 5).ts.get("a").exec();
  assert.strictEqual(second.value, 5);
  await client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
