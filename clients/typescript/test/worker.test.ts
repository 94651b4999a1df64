/** What a worker does, against a server in this process. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { limits } from "../src/engine.js";
import { NotRetryable, Problem, RetryAfter, Stopped, type Task, Worker } from "../src/index.js";
import { HeldTask } from "../src/task.js";
import { FakeRun, FakeServer, problem } from "./fake_server.js";
import { aborted, gate, withWorker } from "./support.js";

test("handlers are executed and their values reported", async () => {
  const runs: FakeRun[] = [];
  const options = { name: "mailer-7", labels: { zone: "eu" }, key: "secret", tenant: "acme" };
  const server = await withWorker(
    options,
    (worker) => {
      worker.handler("text", async (task) => `n is ${task.payload.n}`);
      worker.handler("json", (task: Task<{ n: number }>) => ({ n: task.payload.n }));
      worker.handler("nothing", () => undefined);
    },
    async (server) => {
      for (const name of ["text", "json", "nothing"]) runs.push(server.add(name, { payload: { n: 7 } }));
      for (const run of runs) await server.waitState(run, "succeeded");
    },
  );
  assert.deepEqual(runs.map((run) => run.results[0].output), ["n is 7", '{"n":7}', undefined]);
  for (const run of runs) assert.ok(run.results[0].started_at <= run.results[0].finished_at);
  const { body, headers } = server.requests[0]!;
  assert.equal(headers.authorization, "Bearer secret");
  assert.equal(headers["punctual-tenant"], "acme");
  const { worker, name, labels, queues, capacity, concurrency } = body;
  assert.deepEqual([worker, name, labels], [undefined, "mailer-7", { zone: "eu" }]);
  assert.deepEqual([queues, capacity, concurrency], [["default"], 10, 10]);
  assert.match(server.seen("POST", "/claims")[1].worker, /^worker-/);
});

test("a task says what the run is", async () => {
  const seen = gate<Task>();
  let id = "";
  await withWorker(
    {},
    (worker) => worker.handler("h", (task) => seen.open(task)),
    async (server) => {
      const limits = { timeout: "PT5M", deadline: "2099-01-01T00:00:00Z" };
      const run = server.add("h", { payload: [1], correlation_id: "c", type: "t", checkpoint: { row: 700 }, ...limits });
      id = run.id;
      await server.waitState(run, "succeeded");
    },
  );
  const task = await seen.promise;
  assert.deepEqual([task.runId, task.attempt, task.jobId, task.jobName], [id, 1, "job-1", "a job"]);
  assert.equal(task.scheduledFor.toISOString(), "2026-11-18T09:00:00.123Z");
  assert.deepEqual([task.idempotencyKey, task.payload, task.lastCheckpoint], [`key-${id}`, [1], { row: 700 }]);
  assert.deepEqual([task.labels, task.correlationId, task.type, task.timeoutSeconds], [{ team: "a" }, "c", "t", 300]);
  assert.equal(task.deadline?.getUTCFullYear(), 2099);
});

class CardDeclined extends NotRetryable {}
class HTTPError extends Error {}
const FAILURES: [string, () => unknown, object][] = [
  ["TypeError", () => new TypeError("bad"), { code: "type_error", message: "bad", is_retryable: true }],
  ["an acronym", () => new HTTPError("404"), { code: "http_error", message: "404", is_retryable: true }],
  ["Error", () => new Error("plain"), { code: "worker_failed", message: "plain", is_retryable: true }],
  ["text", () => "text", { code: "worker_failed", message: "text", is_retryable: true }],
  ["an abort", () => AbortSignal.abort().reason, { code: "abort_error", message: "This operation was aborted", is_retryable: true }],
  ["NotRetryable", () => new NotRetryable("no"), { code: "worker_failed", message: "no", is_retryable: false }],
  ["a code", () => new NotRetryable("no", { code: "gone" }), { code: "gone", message: "no", is_retryable: false }],
  ["a code with spaces", () => new NotRetryable("no", { code: "trop tôt" }), { code: "trop_t_t", message: "no", is_retryable: false }],
  ["a subclass", () => new CardDeclined("no"), { code: "card_declined", message: "no", is_retryable: false }],
  [
    "RetryAfter",
    () => new RetryAfter(1.5, "busy"),
    { code: "worker_failed", message: "busy", is_retryable: true, retry_after: "PT1.500S" },
  ],
];

for (const [name, make, expected] of FAILURES) {
  test(`what is thrown is reported by its name: ${name}`, async () => {
    await withWorker(
      {},
      (worker) =>
        worker.handler("h", () => {
          throw make();
        }),
      async (server) => {
        const run = server.add("h");
        await server.waitState(run, "failed");
        assert.deepEqual(run.results[0].error, expected);
      },
    );
  });
}

test("an unknown handler fails so that another worker may have it", async () => {
  await withWorker(
    {},
    (worker) => worker.handler("known", () => {}),
    async (server) => {
      const run = server.add("h");
      await server.waitState(run, "failed");
      const message = "this worker has no handler `h`; it has `known`";
      assert.deepEqual(run.results[0].error, { code: "handler_unknown", message, is_retryable: true });
    },
  );
});

test("a value that is no JSON fails for good", async () => {
  const circle: Record<string, unknown> = {};
  circle["circle"] = circle;
  await withWorker(
    {},
    (worker) => worker.handler("circle", () => circle).handler("symbol", () => Symbol("s")),
    async (server) => {
      for (const run of [server.add("circle"), server.add("symbol")]) {
        await server.waitState(run, "failed");
        assert.equal(run.results[0].error.code, "output_not_json");
        assert.equal(run.results[0].error.is_retryable, false);
      }
    },
  );
});

test("claims follow free capacity", async () => {
  const go = gate();
  let [now, most] = [0, 0];
  const server = await withWorker(
    { concurrency: 3 },
    (worker) =>
      worker.handler("h", async () => {
        most = Math.max(most, ++now);
        await go.promise;
        now -= 1;
      }),
    async (server) => {
      const runs = Array.from({ length: 10 }, () => server.add("h"));
      await server.wait(() => runs.filter((run) => run.state === "running").length === 3);
      await server.wait(() => server.seen("POST", "/heartbeat").length >= 3);
      assert.equal(runs.filter((run) => run.state === "pending").length, 7);
      go.open();
      for (const run of runs) await server.waitState(run, "succeeded");
      assert.deepEqual(new Set(runs.map((run) => run.results.length)), new Set([1]));
    },
  );
  assert.deepEqual([most, server.mostHeld], [3, 3]);
  assert.ok(server.seen("POST", "/claims").every((claim) => claim.capacity <= 3));
});

test("heartbeats carry progress, checkpoints and lines", async () => {
  const go = gate();
  const server = await withWorker(
    {},
    (worker) =>
      worker.handler("h", async (task) => {
        task.progress(40.9, "page 4 of 10");
        task.checkpoint({ row: 800 });
        task.log("page 4\nand a half");
        await go.promise;
        task.log("done");
      }),
    async (server) => {
      const run = server.add("h");
      await server.wait(() => run.checkpoint !== undefined);
      assert.deepEqual(run.checkpoint, { row: 800 });
      assert.deepEqual(run.progress, { percent: 40, message: "page 4 of 10" });
      assert.deepEqual(run.log, ["page 4", "and a half"]);
      await server.wait(() => Object.keys(server.seen("POST", "/heartbeat").at(-1).held[0]).length === 2);
      go.open();
      await server.waitState(run, "succeeded");
      assert.deepEqual(run.log, ["page 4", "and a half", "done"]);
    },
  );
  const beat = server.seen("POST", "/heartbeat")[0];
  assert.ok(beat.concurrency === 10 && beat.saturation >= 0 && beat.saturation <= 1);
});

test("a flushed checkpoint is there when its promise says so", async () => {
  await withWorker(
    { heartbeatEvery: "PT1H" },
    (worker, server) =>
      worker.handler("h", async (task) => {
        await task.checkpoint(7, { flush: true });
        return server.runs.get(task.runId)!.checkpoint;
      }),
    async (server) => {
      const run = server.add("h");
      await server.waitState(run, "succeeded");
      assert.equal(run.results[0].output, "7");
    },
  );
});

test("the checkpoint of a failed attempt arrives before its result", async () => {
  await withWorker(
    { heartbeatEvery: "PT1H" },
    (worker) =>
      worker.handler("h", (task) => {
        if (task.attempt > 1) return task.lastCheckpoint;
        task.checkpoint({ row: 3 });
        throw new Error("no");
      }),
    async (server) => {
      const run = server.add("h", {}, { attemptsMax: 2 });
      await server.waitState(run, "succeeded");
      assert.equal(run.results[1].output, '{"row":3}');
    },
  );
});

test("a checkpoint that is too large is refused where it is made", () => {
  const task = new HeldTask(new FakeRun(1, "h", {}).claimed());
  assert.throws(() => task.checkpoint("x".repeat(64 << 10)), /too large/);
  assert.throws(() => task.checkpoint(undefined), /JSON/);
});

test("lines that wait are bounded", () => {
  const task = new HeldTask(new FakeRun(1, "h", {}).claimed());
  for (let i = 0; i < 100; i += 1) task.log("x".repeat(10_000));
  const lines = task.takeReports(1 << 20)!.body()["log"] as string[];
  assert.equal(lines[0], "(37 lines are left out)");
  assert.equal(lines.length, 64);
  assert.ok(lines.every((line) => line.length <= 4096));
});

test("a server that is down for a while loses nothing", async () => {
  const go = gate();
  let started = 0;
  const server = await withWorker(
    { concurrency: 4 },
    (worker) =>
      worker.handler("h", async () => {
        started += 1;
        await go.promise;
      }),
    async (server) => {
      const runs = Array.from({ length: 4 }, () => server.add("h"));
      await server.wait(() => started === 4 && server.seen("POST", "/heartbeat").length > 0);
      await server.down();
      go.open();
      runs.push(...Array.from({ length: 3 }, () => server.add("h")));
      await server.up();
      for (const run of runs) await server.waitState(run, "succeeded");
      assert.deepEqual(runs.map((run) => run.results.length), [1, 1, 1, 1, 1, 1, 1]);
    },
  );
  const names = server.seen("POST", "/claims").map((claim) => claim.worker).filter(Boolean);
  assert.equal(new Set(names).size, 1);
});

test("what a handler says meanwhile arrives later", async () => {
  const [down, told, go] = [gate(), gate(), gate()];
  await withWorker(
    {},
    (worker) =>
      worker.handler("h", async (task) => {
        await down.promise;
        task.log("first");
        task.progress(10);
        task.checkpoint(1, { flush: true });
        told.open();
        await go.promise;
      }),
    async (server) => {
      const run = server.add("h");
      await server.waitState(run, "running");
      const [identity] = server.workers;
      server.fixed.set(`POST /v1/workers/${identity}/heartbeat`, problem(503, "unavailable"));
      down.open();
      await told.promise;
      const beats = server.seen("POST", "/heartbeat").length;
      await server.wait(() => server.seen("POST", "/heartbeat").length >= beats + 2);
      assert.equal(run.checkpoint, undefined);
      server.fixed.clear();
      await server.wait(() => run.checkpoint === 1);
      go.open();
      await server.waitState(run, "succeeded");
      assert.deepEqual([run.progress, run.log], [{ percent: 10 }, ["first"]]);
    },
  );
});

test("an answer that refuses for now is asked again", async () => {
  await withWorker(
    {},
    (worker) => worker.handler("h", () => {}),
    async (server) => {
      await server.wait(() => server.workers.size > 0);
      const [identity] = server.workers;
      for (const path of ["claims", `workers/${identity}/results`, `workers/${identity}/heartbeat`]) {
        server.fixed.set(`POST /v1/${path}`, problem(503, "unavailable"));
      }
      const run = server.add("h");
      await server.wait(() => server.seen("POST", "/heartbeat").length >= 2);
      server.fixed.delete("POST /v1/claims");
      await server.wait(() => server.seen("POST", "/results").length >= 2);
      server.fixed.clear();
      await server.waitState(run, "succeeded");
      assert.equal(run.results.length, 1);
    },
  );
});

test("a claim whose answer got lost is executed after its lease", async () => {
  const server = await withWorker(
    {},
    (worker) => worker.handler("h", (task) => task.attempt),
    async (server) => {
      await server.wait(() => server.workers.size > 0);
      server.loseClaims = 1;
      const run = server.add("h");
      await server.waitState(run, "succeeded");
      assert.deepEqual(run.results.map((result) => result.output), ["2"]);
    },
  );
  const names = server.seen("POST", "/claims").map((claim) => claim.worker).filter(Boolean);
  assert.equal(new Set(names).size, 1);
});

test("a result whose answer got lost is sent again", async () => {
  await withWorker(
    { heartbeatEvery: "PT1H" }, // A heartbeat in between would tell as well that the attempt is over.
    (worker, server) => {
      server.loseResults = 1;
      worker.handler("h", () => {});
    },
    async (server) => {
      const run = server.add("h");
      await server.wait(() => server.seen("POST", "/results").length >= 2);
      const another = server.add("h");
      await server.waitState(another, "succeeded");
      assert.deepEqual([run.state, run.results.length], ["succeeded", 1]);
    },
  );
});

test("a result that is refused for now is sent again", async () => {
  await withWorker(
    {},
    (worker, server) => {
      server.putOffResults = 2;
      worker.handler("h", () => {});
    },
    async (server) => {
      const runs = Array.from({ length: 4 }, () => server.add("h"));
      for (const run of runs) await server.waitState(run, "succeeded");
      assert.deepEqual(runs.map((run) => run.attempt), [1, 1, 1, 1]);
    },
  );
});

test("many results go in one request", async () => {
  const go = gate();
  let started = 0;
  const server = await withWorker(
    { concurrency: 50 },
    (worker) =>
      worker.handler("h", async () => {
        if (++started === 50) go.open();
        await go.promise;
      }),
    async (server) => {
      const runs = Array.from({ length: 50 }, () => server.add("h"));
      for (const run of runs) await server.waitState(run, "succeeded");
    },
  );
  assert.ok(server.seen("POST", "/results").length < 25);
});

test("a result that is never taken becomes a failure", async () => {
  const go = gate();
  const server = await withWorker(
    {},
    (worker) =>
      worker.handler("h", async () => {
        await go.promise;
        return "output";
      }),
    async (server) => {
      const run = server.add("h");
      await server.waitState(run, "running");
      const [identity] = server.workers;
      server.fixed.set(`POST /v1/workers/${identity}/results`, problem(413, "body_too_large", "too large"));
      go.open();
      await server.wait(() => server.seen("POST", "/results").length >= 2);
    },
  );
  const codes = server.seen("POST", "/results").map((body) => body.results[0].error?.code);
  assert.deepEqual(codes.slice(0, 2), [undefined, "result_refused"]);
});

test("a server that refuses reports gets heartbeats and results without", async () => {
  const errors: unknown[] = [];
  await withWorker(
    {},
    (worker, server) => {
      server.refusesReports = true;
      worker.handler("h", async (task) => {
        task.progress(10);
        await task.checkpoint(1, { flush: true }).catch((error: Problem) => errors.push(error.code));
        task.log("a line");
        return "output";
      });
    },
    async (server) => {
      const run = server.add("h");
      await server.waitState(run, "succeeded");
      assert.deepEqual([run.attempt, run.results[0].output], [1, "output"]);
    },
  );
  assert.deepEqual(errors, ["invalid_request"]);
});

test("what is not held any more is stopped and not reported", async () => {
  const stopped = gate<unknown>();
  const server = await withWorker(
    {},
    (worker) =>
      worker.handler("h", async (task) => {
        await aborted(task.signal);
        stopped.open(task.signal.reason);
        task.signal.throwIfAborted();
      }),
    async (server) => {
      const run = server.add("h");
      await server.wait(() => server.seen("POST", "/heartbeat").at(-1)?.held.length === 1);
      server.takeAway(run);
      const reason = await stopped.promise;
      assert.ok(reason instanceof Stopped && reason.why === "not_held");
      const another = server.add("none");
      await server.waitState(another, "failed");
      assert.deepEqual(run.results, []);
    },
  );
  assert.equal(server.seen("POST", "/results").flatMap((body) => body.results).length, 1);
});

test("a cancelled run aborts its handler and is reported so", async () => {
  await withWorker(
    {},
    (worker) =>
      worker.handler("h", async (task) => {
        await aborted(task.signal);
        return "ended early";
      }),
    async (server) => {
      const run = server.add("h");
      await server.waitState(run, "running");
      server.cancel(run);
      await server.waitState(run, "cancelled");
      assert.equal(run.results[0].outcome, "cancelled");
      assert.equal(run.results[0].error, undefined);
    },
  );
});

test("a worker taken for dead begins anew holding nothing", async () => {
  const stopped = gate();
  const server = await withWorker(
    { concurrency: 1 },
    (worker) =>
      worker.handler("h", async (task) => {
        if (task.attempt === 1) {
          await aborted(task.signal);
          stopped.open();
        }
        return task.attempt;
      }),
    async (server) => {
      const run = server.add("h");
      await server.waitState(run, "running");
      const [before] = server.workers;
      server.loseWorkers();
      await server.waitState(run, "succeeded");
      await stopped.promise;
      assert.ok(!server.workers.has(before!));
      assert.deepEqual(run.results.map((result) => result.output), ["2"]);
    },
  );
  assert.equal(server.seen("POST", "/claims").filter((claim) => claim.worker === undefined).length, 2);
});

for (const limit of [{ timeout: "PT0.050S" }, { timeout: "PT5M", deadline: "2020-01-01T00:00:00Z" }]) {
  test(`an attempt that takes too long is aborted and timed out: ${JSON.stringify(limit)}`, async () => {
    await withWorker(
      {},
      (worker) => worker.handler("h", (task) => aborted(task.signal)),
      async (server) => {
        const run = server.add("h", limit);
        await server.waitState(run, "timed_out");
        assert.equal(run.results[0].error.code, "timed_out");
      },
    );
  });
}

test("a handler that does not stop keeps its place but not its attempt", async () => {
  const go = gate();
  const before = limits.stopGraceMs;
  limits.stopGraceMs = 50;
  try {
    await withWorker(
      { concurrency: 1 },
      (worker) => worker.handler("deaf", () => go.promise).handler("h", () => {}),
      async (server) => {
        const run = server.add("deaf", { timeout: "PT0.050S" });
        const next = server.add("h");
        await server.waitState(run, "timed_out");
        const beats = server.seen("POST", "/heartbeat").length;
        await server.wait(() => server.seen("POST", "/heartbeat").length >= beats + 2);
        assert.equal(next.state, "pending");
        go.open();
        await server.waitState(next, "succeeded");
      },
    );
  } finally {
    limits.stopGraceMs = before;
  }
});

test("a refusal at the first call ends the worker", async () => {
  const server = await FakeServer.start();
  server.fixed.set("POST /v1/claims", problem(401, "unauthenticated", "a key is needed"));
  await assert.rejects(new Worker(server.url).run(), (error) => {
    assert.ok(error instanceof Problem);
    assert.deepEqual([error.code, error.status], ["unauthenticated", 401]);
    return true;
  });
  await server.down();
});

test("stopping lets what runs end and takes leave", async () => {
  const [started, go] = [gate(), gate()];
  const server = await withWorker(
    {},
    (worker) =>
      worker.handler("h", async () => {
        started.open();
        await go.promise;
        return "ended";
      }),
    async (server, worker, ended) => {
      const run = server.add("h");
      await started.promise;
      worker.stop();
      const beats = server.seen("POST", "/heartbeat").length;
      await server.wait(() => server.seen("POST", "/heartbeat").length >= beats + 2, "heartbeats go on");
      const late = server.add("h");
      go.open();
      await ended;
      assert.equal(run.results[0].output, "ended");
      assert.deepEqual([late.attempt, late.results], [0, []]);
    },
  );
  assert.equal(server.deleted.length, 1);
});

test("what does not end within the grace is released with its checkpoint", async () => {
  const started = gate();
  const server = await withWorker(
    { graceSeconds: 0.05 },
    (worker) =>
      worker.handler("h", async (task) => {
        started.open();
        await aborted(task.signal);
        task.checkpoint({ row: 9 });
      }),
    async (server, worker, ended) => {
      const run = server.add("h");
      await started.promise;
      worker.stop();
      await ended;
      assert.deepEqual(run.results.map((result) => result.outcome), ["released"]);
      assert.deepEqual([run.state, run.checkpoint], ["pending", { row: 9 }]);
    },
  );
  assert.equal(server.deleted.length, 1);
});

test("a worker that stops while the server is down ends all the same", async () => {
  const started = gate();
  const before = limits.deliverGraceMs;
  limits.deliverGraceMs = 200;
  try {
    await withWorker(
      {},
      (worker) =>
        worker.handler("h", (task) => {
          started.open();
          return aborted(task.signal);
        }),
      async (server, worker, ended) => {
        const run = server.add("h");
        await started.promise;
        await server.down();
        worker.stop();
        worker.stop();
        await ended;
        assert.deepEqual(run.results, []);
      },
    );
  } finally {
    limits.deliverGraceMs = before;
  }
});

test("wrong settings are refused at once", () => {
  const url = "http://127.0.0.1:7171";
  assert.throws(() => new Worker(url, { queues: [] }), /at least one/);
  assert.throws(() => new Worker(url, { concurrency: 0 }), /executes nothing/);
  assert.throws(() => new Worker("127.0.0.1:7171"), /address/);
  const worker = new Worker(url).handler("h", () => {});
  assert.throws(() => worker.handler("h", () => {}), /already/);
});
