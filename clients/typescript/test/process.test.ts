/** Signals to a worker that is a process of its own, and the texts that users copy. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { FakeServer } from "./fake_server.js";
import { ROOT, WorkerProcess } from "./processes.js";

const WORKER = fileURLToPath(new URL("drained.js", import.meta.url));

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test(`${signal} lets what runs end and takes leave`, async (t) => {
    const server = await FakeServer.start();
    t.after(() => server.down());
    const worker = new WorkerProcess(t, WORKER, server.url);
    const run = server.add("slow", { payload: { seconds: 0.5 } });
    await worker.waitLine(`begins ${run.id} 1`);
    worker.signal(signal);
    assert.equal(await worker.ended, 0, worker.lines.join("\n"));
    assert.equal(run.results[0].output, "ended");
    assert.equal(server.deleted.length, 1);
    assert.equal(worker.lines.at(-1), "left");
  });
}

test("what outlives the grace is released", async (t) => {
  const server = await FakeServer.start();
  t.after(() => server.down());
  const worker = new WorkerProcess(t, WORKER, server.url, { GRACE: "0.1" });
  const [run, short] = [server.add("slow"), server.add("slow", { payload: { seconds: 0 } })];
  await worker.waitLine(`begins ${run.id} 1`);
  await server.waitState(short, "succeeded");
  worker.signal("SIGTERM");
  assert.equal(await worker.ended, 0, worker.lines.join("\n"));
  assert.deepEqual(run.results.map((result) => result.outcome), ["released"]);
  assert.deepEqual([run.state, server.deleted.length], ["pending", 1]);
});

test("a second signal ends the grace", async (t) => {
  const server = await FakeServer.start();
  t.after(() => server.down());
  const worker = new WorkerProcess(t, WORKER, server.url, { GRACE: "600" });
  const run = server.add("slow");
  await worker.waitLine(`begins ${run.id} 1`);
  worker.signal("SIGTERM");
  const beats = server.seen("POST", "/heartbeat").length;
  await server.wait(() => server.seen("POST", "/heartbeat").length >= beats + 2);
  worker.signal("SIGTERM");
  assert.equal(await worker.ended, 0, worker.lines.join("\n"));
  assert.deepEqual(run.results.map((result) => result.outcome), ["released"]);
});

test("the ten lines of the README are the example, and work", async (t) => {
  const example = join(ROOT, "examples", "ten_lines.mjs");
  const blocks = [...readFileSync(join(ROOT, "README.md"), "utf8").matchAll(/```js\n(.*?)```/gs)];
  assert.equal(blocks[0]![1], readFileSync(example, "utf8"));
  assert.ok(blocks[0]![1]!.split("\n").filter((line) => line.trim() !== "").length <= 10);
  const server = await FakeServer.start();
  t.after(() => server.down());
  const worker = new WorkerProcess(t, example, server.url);
  const run = server.add("welcome", { payload: { n: 40 } }, { queue: "emails" });
  await server.waitState(run, "succeeded");
  worker.signal("SIGTERM");
  assert.equal(await worker.ended, 0, worker.lines.join("\n"));
  assert.equal(run.results[0].output, "sent 40");
});
