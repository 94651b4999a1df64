/**
 * Runs a handler once for each idempotency key, and gives the recorded result when a run is delivered again.
 *
 * What it promises depends on where the effect is. An effect in the same database as the record, through the connection
 * that the handler is given, happens exactly once: both are committed together or not at all. Any other effect (a mail,
 * a call to another service) happens at least once: a crash between the effect and the record repeats it. Pass
 * `task.idempotencyKey` on to such a service, if it takes one.
 */
import type { Task } from "./task.js";

/** Where results are recorded. */
export interface Store<Connection> {
  /**
   * The result that is recorded under a key, or that of `effect`, which is recorded then. Whoever else wants the key
   * waits meanwhile. If `effect` throws, nothing is recorded. Results are JSON text.
   */
  run(key: string, effect: (connection: Connection) => Promise<string>): Promise<string>;
}

/**
 * Makes a handler take effect once for each idempotency key:
 *
 *     worker.handler("charge", once(new SqlStore(() => pool.connect()), async (task, connection) => {
 *       await connection.query("INSERT INTO charges VALUES ($1)", [task.payload.cents]);
 *       return { charged: task.payload.cents };
 *     }));
 */
export function once<Connection, Payload = any>(
  store: Store<Connection>,
  handler: (task: Task<Payload>, connection: Connection) => unknown,
): (task: Task<Payload>) => Promise<unknown> {
  return async (task) => {
    const text = await store.run(task.idempotencyKey, async (connection) => {
      const value = await handler(task, connection);
      return JSON.stringify(value ?? null);
    });
    return JSON.parse(text) ?? undefined;
  };
}

/** Records in this process: forgotten when it ends, so it is for tests and for effects inside the process. */
export class MemoryStore implements Store<undefined> {
  readonly #results = new Map<string, Promise<string>>();
  readonly #keysMax: number;

  /** Of more keys than `keysMax` the oldest are forgotten. */
  constructor(keysMax = 10_000) {
    this.#keysMax = keysMax;
  }

  async run(key: string, effect: (connection: undefined) => Promise<string>): Promise<string> {
    for (;;) {
      const known = this.#results.get(key);
      if (known === undefined) break;
      try {
        return await known;
      } catch {
        // Whoever had the key failed; now it is free, unless another was faster.
        if (this.#results.get(key) === known) this.#results.delete(key);
      }
    }
    const result = effect(undefined);
    this.#results.set(key, result);
    try {
      await result;
    } catch (error) {
      if (this.#results.get(key) === result) this.#results.delete(key);
      throw error;
    }
    for (const oldest of this.#results.keys()) {
      if (this.#results.size <= this.#keysMax) break;
      this.#results.delete(oldest);
    }
    return result;
  }
}

/** A connection to a database, for one transaction; a client of `pg` is one. */
export interface SqlConnection {
  /** Executes a statement with parameters `$1`, `$2` and so on. */
  query(sql: string, params?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>;
  /** Called at the end; with an error if the connection is of no more use. */
  release?(error?: Error): void;
}

/**
 * Records in a database of yours: PostgreSQL, or SQLite 3.35 or newer. With `pg`: `new SqlStore(() => pool.connect())`.
 * The table is made by `createTable`; delete rows that are older than any run may be delivered again.
 */
export class SqlStore<C extends SqlConnection = SqlConnection> implements Store<C> {
  readonly #connect: () => C | Promise<C>;
  readonly #table: string;

  /** `connect` gives a connection that nobody else uses until it is released. */
  constructor(connect: () => C | Promise<C>, options: { table?: string } = {}) {
    this.#connect = connect;
    this.#table = options.table ?? "punctual_once";
    if (!/^[A-Za-z_][\w.]*$/.test(this.#table)) {
      throw new TypeError(`\`${this.#table}\` is not the plain name of a table`);
    }
  }

  /** Makes the table, unless it is there. */
  async createTable(): Promise<void> {
    const connection = await this.#connect();
    try {
      await connection.query(
        `CREATE TABLE IF NOT EXISTS ${this.#table} (key TEXT PRIMARY KEY, result TEXT, ` +
          "recorded_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)",
      );
    } finally {
      connection.release?.();
    }
  }

  async run(key: string, effect: (connection: C) => Promise<string>): Promise<string> {
    const connection = await this.#connect();
    let broken: Error | undefined;
    try {
      await connection.query("BEGIN");
      try {
        const result = await this.#runInside(connection, key, effect);
        await connection.query("COMMIT");
        return result;
      } catch (error) {
        await connection.query("ROLLBACK").catch((lost: Error) => (broken = lost));
        throw error;
      }
    } finally {
      connection.release?.(broken);
    }
  }

  async #runInside(connection: C, key: string, effect: (connection: C) => Promise<string>): Promise<string> {
    // Writing the row takes the key: whoever else wants it waits until this transaction ends.
    const insert = `INSERT INTO ${this.#table} (key) VALUES ($1) ON CONFLICT (key) DO NOTHING RETURNING key`;
    const taken = await connection.query(insert, [key]);
    if (taken.rows.length === 0) {
      const { rows } = await connection.query(`SELECT result FROM ${this.#table} WHERE key = $1`, [key]);
      return String(rows[0]!["result"]);
    }
    const result = await effect(connection);
    await connection.query(`UPDATE ${this.#table} SET result = $1 WHERE key = $2`, [result, key]);
    return result;
  }
}
