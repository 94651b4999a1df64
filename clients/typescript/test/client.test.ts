/** The management client, and requests in general. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, Problem, ServerUnreachable } from "../src/index.js";
import { duration, millis, shorten } from "../src/wire.js";
import { FakeServer, problem } from "./fake_server.js";

test("it registers, triggers, reads and lists", async () => {
  const server = await FakeServer.start();
  const client = new Client(`${server.url}/`, { key: "secret", tenant: "acme" });
  server.fixed.set("POST /v1/jobs", [201, { id: "job-1", name: "a" }]);
  server.fixed.set("POST /v1/jobs/job-1/trigger", [201, { id: "run-1", state: "pending" }]);
  server.fixed.set("GET /v1/runs/run-1", [200, { id: "run-1", attempts: [] }]);
  server.fixed.set("GET /v1/runs", [200, { items: [{ id: "run-1" }], next_cursor: null }]);
  const job = await client.createJob({ name: "a", schedule: { now: true }, target: { worker: { handler: "h" } } });
  const run = await client.trigger(job.id, { correlationId: "c" });
  assert.deepEqual((await client.getRun(run.id)).attempts, []);
  const ids = [];
  for await (const { id } of client.eachRun({ job: job.id, state: "pending" })) ids.push(id);
  assert.deepEqual(ids, ["run-1"]);
  await server.down();
  assert.deepEqual(server.requests.map((request) => request.path), [
    "/v1/jobs",
    "/v1/jobs/job-1/trigger",
    "/v1/runs/run-1",
    "/v1/runs?job=job-1&state=pending&limit=1000",
  ]);
  const [first, second] = server.requests;
  assert.deepEqual(second!.body, { correlation_id: "c" });
  assert.equal(first!.headers.authorization, "Bearer secret");
  assert.equal(first!.headers["punctual-tenant"], "acme");
  assert.notEqual(first!.headers["idempotency-key"], second!.headers["idempotency-key"]);
});

test("a key is taken from the environment unless one is given", async () => {
  const shown = async (options?: { key: string }) => {
    const server = await FakeServer.start();
    server.fixed.set("GET /v1/runs/run-1", [200, { id: "run-1", attempts: [] }]);
    await new Client(server.url, options).getRun("run-1");
    await server.down();
    return server.requests[0]!.headers.authorization;
  };
  const before = process.env["PUNCTUAL_KEY"];
  try {
    delete process.env["PUNCTUAL_KEY"];
    assert.equal(await shown(), undefined);
    process.env["PUNCTUAL_KEY"] = "pk_1_2";
    assert.equal(await shown(), "Bearer pk_1_2");
    assert.equal(await shown({ key: "pk_3_4" }), "Bearer pk_3_4");
    // As it is read from a file.
    assert.equal(await shown({ key: "pk_3_4\n" }), "Bearer pk_3_4");
    process.env["PUNCTUAL_KEY"] = " pk_1_2\r\n";
    assert.equal(await shown(), "Bearer pk_1_2");
  } finally {
    if (before === undefined) delete process.env["PUNCTUAL_KEY"];
    else process.env["PUNCTUAL_KEY"] = before;
  }
});

test("what is no key is refused and not repeated", () => {
  for (const key of ["pk_1_5ec2e7\npk_3_4", "pk_1_5ec2e7 x", "pk_1_5ec2e7\u20ac", "5ec2e7\x00"]) {
    assert.throws(
      () => new Client("http://127.0.0.1:1", { key }),
      (error) => error instanceof TypeError && /not a key/.test(error.message) && !/5ec2e7/.test(error.message),
    );
  }
});

test("a refusal is thrown with every wrong field", async () => {
  const server = await FakeServer.start();
  const wrong = { pointer: "/schedule/cron", code: "schedule_syntax", detail: "no" };
  const [status, body] = problem(422, "invalid_request", "1 field is wrong");
  server.fixed.set("POST /v1/jobs", [status, { ...body, errors: [wrong] }]);
  const created = new Client(server.url).createJob({ schedule: {}, target: {} });
  await assert.rejects(created, (error) => {
    assert.ok(error instanceof Problem);
    assert.deepEqual([error.code, error.status, error.detail], ["invalid_request", 422, "1 field is wrong"]);
    assert.deepEqual(error.errors, [wrong]);
    assert.equal(error.message, "1 field is wrong (invalid_request)\n  /schedule/cron: no");
    return true;
  });
  await server.down();
});

test("a server that is not there is told apart from a refusal", async () => {
  const server = await FakeServer.start();
  await server.down();
  await assert.rejects(new Client(server.url).getRun("a"), ServerUnreachable);
});

test("durations are read and written", () => {
  for (const [text, length] of [["PT5S", 5e3], ["PT0.250S", 250], ["PT1H30M", 54e5], ["P1DT1S", 86_401_000]] as const) {
    assert.equal(millis(text), length);
  }
  for (const wrong of ["5s", "P", "PT", "", "P1M"]) assert.throws(() => millis(wrong), /not a duration/);
  assert.deepEqual([5000, 250, 0, 61_500].map(duration), ["PT5S", "PT0.250S", "PT0.001S", "PT61.500S"]);
});

test("texts are cut between characters", () => {
  assert.deepEqual([0, 1, 2, 3].map((most) => shorten("aé", most)), ["", "a", "a", "aé"]);
});
