/** SQLite in memory, as the connection that `SqlStore` takes. One transaction at a time, as SQLite has it. */
import { createRequire } from "node:module";

import type { SqlConnection } from "../src/index.js";

interface Statement {
  bind(params: unknown[]): void;
  step(): boolean;
  getAsObject(): Record<string, unknown>;
  free(): void;
}

/** What is used of sql.js, which has no types of its own. */
interface Database {
  prepare(sql: string): Statement;
}

export class Sql {
  #last: Promise<void> = Promise.resolve();

  private constructor(readonly database: Database) {}

  static async open(): Promise<Sql> {
    const load = createRequire(import.meta.url)("sql.js") as () => Promise<{ Database: new () => Database }>;
    const { Database } = await load();
    return new Sql(new Database());
  }

  /** A connection, when whoever has it gives it back. */
  async connect(): Promise<SqlConnection> {
    const before = this.#last;
    let release!: () => void;
    this.#last = new Promise((resolve) => (release = resolve));
    await before;
    return { query: async (sql, params = []) => ({ rows: this.query(sql, params) }), release };
  }

  query(sql: string, params: unknown[] = []): Record<string, unknown>[] {
    const statement = this.database.prepare(sql);
    try {
      statement.bind(params);
      const rows = [];
      while (statement.step()) rows.push(statement.getAsObject());
      return rows;
    } finally {
      statement.free();
    }
  }
}
