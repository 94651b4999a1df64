/** Against the real server: the binary of PUNCTUAL_BIN, a data directory of its own for each test. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";

import { type Job, type JobSpec, Problem } from "../src/index.js";
import { ROOT, RealServer, WorkerProcess, folder } from "./processes.js";

const WORKER = fileURLToPath(new URL("drained.js", import.meta.url));
const skip = process.env["PUNCTUAL_BIN"] === undefined && "PUNCTUAL_BIN is not set";

function real(name: string, body: (t: TestContext) => Promise<void>): void {
  test(name, { skip }, body);
}

async function register(server: RealServer, handler: string, members: Partial<JobSpec> = {}): Promise<Job> {
  const target = { worker: { handler } };
  return server.client.createJob({ name: handler, schedule: { at: "2099-01-01T00:00:00Z" }, target, ...members });
}

real("the ten lines work", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const job = await register(server, "welcome", { payload: { n: 40 }, queue: "emails", schedule: { now: true } });
  const worker = new WorkerProcess(t, join(ROOT, "examples", "ten_lines.mjs"), server.url);
  const { items } = await server.client.listRuns({ job: job.id });
  const run = await server.waitRun(items[0]!.id, (run) => run.state === "succeeded");
  worker.signal("SIGTERM");
  assert.equal(await worker.ended, 0, worker.lines.join("\n"));
  assert.deepEqual(run.attempts.map((attempt) => attempt.output?.text), ["sent 40"]);
});

real("every run ends once with several workers", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const job = await register(server, "slow", { payload: { seconds: 0 } });
  const runs: string[] = [];
  for (let i = 0; i < 100; i += 1) runs.push((await server.client.trigger(job.id)).id);
  const workers = [new WorkerProcess(t, WORKER, server.url), new WorkerProcess(t, WORKER, server.url)];
  for (const id of runs) {
    const run = await server.waitRun(id, (run) => run.state === "succeeded");
    assert.equal(run.attempts.length, 1);
  }
  const begun = workers.flatMap((worker) => worker.lines.filter((line) => line.startsWith("begins")));
  assert.deepEqual(begun.sort(), runs.map((id) => `begins ${id} 1`).sort());
});

real("a run goes on from its checkpoint after its worker was killed", async (t) => {
  const server = await RealServer.start(t, folder(t), "--lease", "10");
  const job = await register(server, "steps", { retry: { max_attempts: 5, delays: ["PT0.1S"] } });
  const { id } = await server.client.trigger(job.id);
  const killed = new WorkerProcess(t, WORKER, server.url);
  await killed.waitLine(`saved ${id} 1`);
  const before = await server.client.getRun(id);
  assert.deepEqual([before.progress, before.checkpoint], [{ percent: 50, message: "half way" }, { row: 800 }]);
  killed.signal("SIGKILL");
  await killed.ended;
  new WorkerProcess(t, WORKER, server.url);
  const run = await server.waitRun(id, (run) => run.state === "succeeded");
  const output = JSON.parse(run.attempts.at(-1)!.output!.text!);
  assert.deepEqual(output.from, { row: 800 });
  assert.ok(output.attempt >= 2);
});

real("a drained worker loses nothing", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const job = await register(server, "slow", { payload: { seconds: 0.5 } });
  const runs: string[] = [];
  for (let i = 0; i < 20; i += 1) runs.push((await server.client.trigger(job.id)).id);
  const drained = new WorkerProcess(t, WORKER, server.url);
  await drained.waitLine("begins");
  drained.signal("SIGTERM");
  assert.equal(await drained.ended, 0, drained.lines.join("\n"));
  assert.equal(drained.lines.at(-1), "left");
  assert.deepEqual(await server.client.listWorkers(), []);
  new WorkerProcess(t, WORKER, server.url);
  for (const id of runs) {
    const run = await server.waitRun(id, (run) => run.state === "succeeded");
    const outcomes = run.attempts.map((attempt) => attempt.outcome);
    assert.equal(outcomes.filter((outcome) => outcome === "succeeded").length, 1);
    assert.ok(!outcomes.includes("failed") && !outcomes.includes("lost"), JSON.stringify(run));
  }
  const count = (word: string) => drained.lines.filter((line) => line.startsWith(word)).length;
  assert.equal(count("ends"), count("begins"));
  assert.ok(count("ends") >= 1);
});

real("what outlives the grace is done by somebody else at once", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const job = await register(server, "slow", { payload: { seconds: 2 } });
  const { id } = await server.client.trigger(job.id);
  const drained = new WorkerProcess(t, WORKER, server.url, { GRACE: "0.1" });
  await drained.waitLine(`begins ${id}`);
  drained.signal("SIGTERM");
  assert.equal(await drained.ended, 0, drained.lines.join("\n"));
  new WorkerProcess(t, WORKER, server.url);
  const run = await server.waitRun(id, (run) => run.state === "succeeded");
  assert.equal(run.attempts.at(-1)!.output?.text, "ended");
});

real("a cancelled run stops", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const job = await register(server, "slow");
  const { id } = await server.client.trigger(job.id);
  const worker = new WorkerProcess(t, WORKER, server.url);
  await worker.waitLine(`begins ${id} 1`);
  await server.client.cancelRun(id);
  await worker.waitLine(`stops ${id} 1`);
  const run = await server.waitRun(id, (run) => run.state === "cancelled");
  assert.equal(run.attempts[0]!.outcome, "cancelled");
});

real("an attempt that takes too long is timed out", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const job = await register(server, "slow", { timeout: "PT0.3S", retry: { max_attempts: 1 } });
  const { id } = await server.client.trigger(job.id);
  const worker = new WorkerProcess(t, WORKER, server.url);
  await worker.waitLine(`stops ${id} 1`);
  const run = await server.waitRun(id, (run) => run.state === "timed_out");
  assert.equal(run.attempts[0]!.error?.code, "timed_out");
});

real("a handler that nobody has fails", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const job = await register(server, "none", { retry: { max_attempts: 1 } });
  const { id } = await server.client.trigger(job.id);
  new WorkerProcess(t, WORKER, server.url);
  const run = await server.waitRun(id, (run) => run.state === "failed");
  assert.equal(run.attempts[0]!.error?.code, "handler_unknown");
});

real("a server that is restarted gets the result of what went on meanwhile", async (t) => {
  const data = folder(t);
  const server = await RealServer.start(t, data);
  const job = await register(server, "slow", { payload: { seconds: 1 } });
  const { id } = await server.client.trigger(job.id);
  const worker = new WorkerProcess(t, WORKER, server.url);
  await worker.waitLine(`begins ${id} 1`);
  server.signal("SIGKILL");
  await server.ended;
  await worker.waitLine(`ends ${id} 1`);
  const again = await RealServer.startOn(t, server.port, data);
  const run = await again.waitRun(id, (run) => run.state === "succeeded");
  assert.equal(run.attempts.length, 1);
  // It goes on working, as the same or as another.
  const next = await again.client.trigger(job.id);
  await again.waitRun(next.id, (run) => run.state === "succeeded");
  assert.equal(worker.lines.filter((line) => line === `begins ${id} 1`).length, 1);
});

real("the example that resumes ends", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const environment = { ROWS: "20", MS_PER_ROW: "10" };
  const worker = new WorkerProcess(t, join(ROOT, "examples", "resume.mjs"), server.url, environment);
  await worker.waitLine("this worker is");
  const { items } = await server.client.listRuns({ queue: "rows" });
  const run = await server.waitRun(items[0]!.id, (run) => run.state === "succeeded");
  assert.equal(run.attempts[0]!.output?.text, '{"first":0,"rows":20}');
  assert.deepEqual(run.attempts[0]!.log?.map((line) => line.text), ["rows 0 to 20"]);
});

real("refusals are problems", async (t) => {
  const server = await RealServer.start(t, folder(t));
  await assert.rejects(server.client.getRun("none"), (error) => {
    assert.ok(error instanceof Problem && [404, 422].includes(error.status));
    return true;
  });
  await assert.rejects(register(server, "h", { timeout: "soon" }), (error) => {
    assert.ok(error instanceof Problem);
    assert.equal(error.errors[0]?.pointer, "/timeout");
    return true;
  });
});

real("the README registers a job", async (t) => {
  const server = await RealServer.start(t, folder(t));
  const blocks = [...readFileSync(join(ROOT, "README.md"), "utf8").matchAll(/```ts\n(.*?)```/gs)];
  // Inside the package, where its own name is found.
  const file = join(ROOT, "build", "readme.mjs");
  writeFileSync(file, blocks[1]![1]!.replace("http://127.0.0.1:7171", server.url));
  const program = new WorkerProcess(t, file, server.url);
  assert.equal(await program.ended, 0, program.lines.join("\n"));
  assert.deepEqual(program.lines, ["pending"]);
});
