/** Once for each idempotency key, in memory and in a database. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { MemoryStore, SqlStore, type Store, once } from "../src/index.js";
import { HeldTask } from "../src/task.js";
import { FakeRun } from "./fake_server.js";
import { Sql } from "./sql.js";

function task(number: number): HeldTask {
  return new HeldTask(new FakeRun(number, "h", {}).claimed());
}

async function sqlStore(): Promise<SqlStore> {
  const sql = await Sql.open();
  const store = new SqlStore(() => sql.connect());
  await store.createTable();
  return store;
}

const STORES: Record<string, () => Promise<Store<any>>> = {
  memory: async () => new MemoryStore(),
  SQL: sqlStore,
};

for (const [name, open] of Object.entries(STORES)) {
  for (const value of [undefined, "text", { n: [1, 2] }, 7]) {
    test(`${name}: a second delivery gets the recorded result: ${JSON.stringify(value)}`, async () => {
      const counted: string[] = [];
      const handler = once(await open(), async (task) => {
        counted.push(task.runId);
        return value;
      });
      for (const number of [1, 1, 2, 1]) assert.deepEqual(await handler(task(number)), value);
      assert.deepEqual(counted, ["run-1", "run-2"]);
    });
  }

  test(`${name}: a failure is not recorded`, async () => {
    let calls = 0;
    const handler = once(await open(), async () => {
      if (++calls === 1) throw new Error("no");
      return "value";
    });
    await assert.rejects(handler(task(1)), /no/);
    assert.equal(await handler(task(1)), "value");
    assert.equal(calls, 2);
  });

  test(`${name}: several at once take effect once`, async () => {
    let calls = 0;
    const handler = once(await open(), async () => {
      calls += 1;
      await new Promise((resolve) => setImmediate(resolve));
      return "value";
    });
    const values = await Promise.all(Array.from({ length: 8 }, () => handler(task(1))));
    assert.deepEqual(new Set(values), new Set(["value"]));
    assert.equal(calls, 1);
  });
}

test("memory: of several at once that fail, each has its turn", async () => {
  let calls = 0;
  const handler = once(new MemoryStore(), async () => {
    calls += 1;
    await new Promise((resolve) => setImmediate(resolve));
    if (calls < 3) throw new Error(`no ${calls}`);
    return "value";
  });
  const ends = await Promise.allSettled(Array.from({ length: 4 }, () => handler(task(1))));
  assert.deepEqual(ends.map((end) => end.status), ["rejected", "rejected", "fulfilled", "fulfilled"]);
  assert.equal(calls, 3);
});

test("the effect and the record are committed together", async () => {
  const sql = await Sql.open();
  sql.query("CREATE TABLE charges (cents INTEGER)");
  const store = new SqlStore(() => sql.connect());
  await store.createTable();
  let isBroken = true;
  const charge = once(store, async (_, connection) => {
    await connection.query("INSERT INTO charges VALUES ($1)", [7]);
    if (isBroken) throw new Error("after the effect");
    return "charged";
  });
  const charges = () => sql.query("SELECT count(*) AS n FROM charges")[0]!["n"];
  await assert.rejects(charge(task(1)), /after the effect/);
  assert.equal(charges(), 0);
  isBroken = false;
  assert.deepEqual([await charge(task(1)), await charge(task(1))], ["charged", "charged"]);
  assert.equal(charges(), 1);
});

test("memory forgets the oldest keys", async () => {
  const counted: string[] = [];
  const handler = once(new MemoryStore(2), async (task) => void counted.push(task.runId));
  for (const number of [1, 2, 3, 3, 1]) await handler(task(number));
  assert.deepEqual(counted, ["run-1", "run-2", "run-3", "run-1"]);
});
