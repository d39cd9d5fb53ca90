import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { createClient } from "../../src/client/client.js";
import type { TidewireError } from "../../src/error.js";
import { sse } from "../../src/features/sse.js";
import { milliseconds } from "../../src/protocol/duration.js";
import type { ServerFrame } from "../../src/protocol/frames.js";
import { type FakeClock, type FakeConnection, fakeClock, fakeServer, type Incoming } from "../../src/testing/index.js";
import type { Client, From, Message, Published, Subscription } from "../../src/types.js";

type Json = Record<string, unknown>;
interface Window {
  after?: string;
  within?: string;
}

/** A script: what an application does, and what goes over the wire from then on. docs/clients.md tells what each step means. */
export interface Scenario {
  says: string;
  played: "both" | "client";
  topic: { name: string; partitions: number };
  /** What stands for each `$name` where the script is the server. */
  values: Record<string, unknown>;
  tokens?: string[];
  transport?: "sse";
  steps: Step[];
}

export interface Step {
  app?: {
    connect?: true;
    subscribe?: { as: string; topic: string; from?: From; credit?: number; by_hand?: true };
    publish?: { as: string; topic: string; value: unknown };
    takes?: { of: string; count: number };
    got?: { of: string; values: unknown[] };
    heard?: { of: string; gap: Json };
    failed?: { of: string; code: string };
    published?: { of: string } & Json;
    state?: string;
  };
  client?: {
    connects?: Window;
    sends?: Json;
    without?: string[];
    calls?: { path: string; query?: Record<string, string>; from?: string } & Window;
    silent?: string;
    away?: string;
  };
  server?: {
    sends?: Json[];
    streams?: Array<{ id?: string; event?: string; data?: unknown }>;
    closes?: { code: number };
    cuts?: true;
    refuses?: boolean;
    silent?: true;
  };
  /** For who plays it against a real node. */
  world?: unknown;
}

/** How long a client may take over what needs no waiting. */
const promptMs = 1000;
const stepMs = 5;
/** Ops that a client may say at any time, and that the player answers by itself where the script does not have them. */
const anytime = ["hello", "credit", "metadata", "unsubscribe"];

interface Reading {
  sub: Subscription;
  values: unknown[];
  gaps: Json[];
  code?: string;
  /** How many more messages the application takes. */
  room: number;
  more(): void;
}

interface Call {
  url: URL;
  headers: Headers;
  stream: ReadableStreamDefaultController<Uint8Array>;
}

/** Plays a script against the client, in virtual time, as its server and its application. */
export class Player {
  readonly #clock: FakeClock;
  readonly #server;
  readonly #client: Client;
  readonly #vars = new Map<string, unknown>();
  readonly #frames: Incoming[] = [];
  readonly #calls: Call[] = [];
  readonly #readings = new Map<string, Reading>();
  readonly #publishes = new Map<string, { value?: Published; error?: TidewireError }>();
  readonly #scripted: Set<string>;
  readonly #scenario: Scenario;
  #dialled = 0;
  #called = 0;
  /** The connection on which nothing is answered any more. */
  #silent?: FakeConnection;
  #mark: number;

  constructor(t: TestContext, scenario: Scenario, seed: number) {
    this.#scenario = scenario;
    this.#clock = fakeClock({ seed });
    this.#mark = this.#clock.now();
    this.#server = fakeServer(this.#clock);
    this.#server.topic(scenario.topic.name, scenario.topic.partitions);
    this.#scripted = new Set(scenario.steps.map((s) => String(s.client?.sends?.op)));
    this.#server.script((frame, connection) => this.#hear(frame, connection));
    const { url, WebSocket } = this.#server;
    const overSse = scenario.transport === "sse";
    if (overSse) this.#server.down({ sockets: true });
    const tokens = [...(scenario.tokens ?? [])];
    this.#client = createClient({
      url,
      WebSocket,
      clock: this.#clock,
      fetch: (input, init) => this.#fetch(new URL(String(input)), init),
      use: overSse ? [sse()] : [],
      auth: scenario.tokens && (async () => String(this.#value(tokens.shift() ?? "none"))),
    });
    t.after(async () => {
      const closed = this.#client.close({ drainMs: 0 });
      await this.#clock.advance(10);
      await closed;
    });
  }

  async play(): Promise<void> {
    for (const [i, step] of this.#scenario.steps.entries()) {
      try {
        if (step.app) this.#app(step.app);
        if (step.client) await this.#expect(step.client);
        if (step.server) this.#act(step.server);
        if (step.app || step.server) await this.#clock.advance(stepMs);
        if (step.app) this.#see(step.app);
      } catch (error) {
        throw new Error(`step ${i + 1}, ${JSON.stringify(step)}: ${(error as Error).message}`, { cause: error });
      }
    }
  }

  // What the server hears.

  #hear(frame: Incoming, connection: FakeConnection): ServerFrame[] | "silence" {
    if (connection === this.#silent) return "silence";
    if (this.#scripted.has(frame.op) || !anytime.includes(frame.op)) {
      this.#frames.push(frame);
      return "silence";
    }
    const { id } = frame;
    const { layout } = this.#server.topic(this.#scenario.topic.name);
    const answers: Record<string, ServerFrame[]> = {
      hello: [{ op: "welcome", id, connection: `c${this.#server.connections.indexOf(connection)}`, ping: "25s" }],
      metadata: [{ op: "metadata", id, topic: this.#scenario.topic.name, layout }],
      unsubscribe: [{ op: "unsubscribed", id }],
    };
    return answers[frame.op] ?? "silence";
  }

  async #fetch(url: URL, init?: RequestInit): Promise<Response> {
    await new Promise<void>((resolve) => this.#clock.after(1, resolve));
    if (url.pathname === "/readyz") return new Response('{"status":"ready"}');
    const body = new ReadableStream<Uint8Array>({
      start: (stream) => void this.#calls.push({ url, headers: new Headers(init?.headers), stream }),
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  }

  // What the client has to do.

  async #expect({ connects, sends, without = [], calls, silent, away }: NonNullable<Step["client"]>): Promise<void> {
    if (connects) {
      await this.#within(connects, () => this.#server.dialled.length > this.#dialled, "it does not connect");
      this.#dialled++;
      await this.#clock.advance(stepMs); // the handshake
    }
    if (sends) {
      await this.#within({}, () => this.#frames.length > 0, `it does not send ${JSON.stringify(sends)}`);
      const frame = this.#frames.shift()!;
      const got = "body" in frame ? { ...frame, ...JSON.parse(`{${frame.body}}`) } : frame;
      this.#fits(sends, got as Json);
      for (const name of without) assert.ok(!(name in frame), `it sends ${name}: ${JSON.stringify(frame)}`);
    }
    if (calls) {
      const window = { ...calls, within: calls.within ?? "10s" }; // two WebSockets are tried before
      await this.#within(window, () => this.#calls.length > this.#called, "it does not call");
      const { url, headers } = this.#calls[this.#called++]!;
      assert.equal(url.pathname, calls.path);
      for (const [name, value] of Object.entries(calls.query ?? {})) assert.equal(url.searchParams.get(name), value);
      if (calls.from) {
        const last = headers.get("Last-Event-ID") ?? url.searchParams.get("last_event_id");
        assert.equal(last ?? url.searchParams.get("cursor"), this.#value(calls.from));
      }
    }
    const quiet = silent ?? away;
    if (quiet === undefined) return;
    const dialled = this.#server.dialled.length;
    await this.#clock.advance(milliseconds(quiet)!);
    if (silent) assert.deepEqual(this.#frames, [], "it says something");
    assert.equal(this.#server.dialled.length, dialled, "it comes back");
  }

  /** Lets time pass until something is so; not before `after` is over, and within the time from then on. */
  async #within({ after, within }: Window, done: () => boolean, otherwise: string): Promise<void> {
    const earliest = this.#mark + (after ? milliseconds(String(this.#value(after)))! : 0);
    const latest = Math.max(earliest, this.#clock.now()) + (within ? milliseconds(within)! : promptMs) + 2 * stepMs;
    while (!done()) {
      assert.ok(this.#clock.now() < latest, otherwise);
      await this.#clock.advance(stepMs);
    }
    if (after) assert.ok(this.#clock.now() >= earliest, `${this.#clock.now() - this.#mark} ms are too early`);
    this.#mark = this.#clock.now();
  }

  // What the server does.

  #act({ sends, streams, closes, cuts, refuses, silent }: NonNullable<Step["server"]>): void {
    this.#mark = this.#clock.now();
    const connection = this.#server.connections.at(-1);
    for (const frame of sends ?? []) connection!.send(this.#filled(frame) as unknown as ServerFrame);
    const stream = this.#calls.at(-1)?.stream;
    for (const { id, event, data } of streams ?? []) {
      const lines = [id && `id: ${this.#value(id)}`, event && `event: ${event}`];
      if (data) lines.push(`data: ${JSON.stringify(this.#filled(data))}`);
      stream!.enqueue(new TextEncoder().encode(`${lines.filter(Boolean).join("\n")}\n\n`));
    }
    if (closes) connection!.close(closes.code);
    if (cuts && stream) stream.close();
    else if (cuts) connection!.close();
    if (refuses !== undefined) this.#server.down({ sockets: refuses });
    if (silent) this.#silent = connection;
  }

  // The application.

  #app({ connect, subscribe, publish, takes }: NonNullable<Step["app"]>): void {
    if (connect) this.#client.connect().catch(() => {}); // its state tells
    if (subscribe) this.#read(subscribe);
    if (publish) {
      const outcome: { value?: Published; error?: TidewireError } = {};
      this.#publishes.set(publish.as, outcome);
      this.#client.publish(publish.topic, this.#value(publish.value)).then(
        (value) => Object.assign(outcome, { value }),
        (error) => Object.assign(outcome, { error }),
      );
    }
    if (takes) {
      const reading = this.#readings.get(takes.of)!;
      reading.room += takes.count;
      reading.more();
    }
  }

  #read({ as, topic, from, credit, by_hand }: NonNullable<NonNullable<Step["app"]>["subscribe"]>): void {
    const sub = this.#client.subscribe(topic, { from, credit });
    const reading: Reading = { sub, values: [], gaps: [], room: by_hand ? 0 : Infinity, more: () => {} };
    this.#readings.set(as, reading);
    sub.on("gap", (gap) => reading.gaps.push(gap));
    const run = async () => {
      const messages: AsyncIterator<Message> = sub[Symbol.asyncIterator]();
      for (;;) {
        while (reading.room === 0)
          await new Promise<void>((resolve) => {
            reading.more = resolve;
          });
        const { done, value } = await messages.next();
        if (done) return;
        reading.room--;
        reading.values.push(value.value);
      }
    };
    run().catch((error: TidewireError) => {
      reading.code = error.code;
    });
  }

  #see({ got, heard, failed, published, state }: NonNullable<Step["app"]>): void {
    if (got) assert.deepEqual(this.#readings.get(got.of)!.values, got.values);
    if (heard) {
      const gap = this.#readings.get(heard.of)!.gaps.at(-1) ?? {};
      for (const [name, value] of Object.entries(heard.gap)) assert.equal(gap[name], value, name);
    }
    if (failed) {
      const code = this.#readings.get(failed.of)?.code ?? this.#publishes.get(failed.of)?.error?.code;
      assert.equal(code, failed.code);
    }
    if (published) {
      const { of, ...want } = published;
      const outcome = this.#publishes.get(of)!;
      assert.ok(outcome.value, `it is not published: ${outcome.error}`);
      this.#fits(want, outcome.value as unknown as Json);
    }
    if (state) assert.equal(this.#client.state, state);
  }

  // Names.

  /** What a name stands for; anything else is itself. */
  #value(v: unknown): unknown {
    if (typeof v !== "string" || !v.startsWith("$")) return v;
    if (!this.#vars.has(v)) this.#vars.set(v, this.#scenario.values[v] ?? v.slice(1));
    return this.#vars.get(v);
  }

  #filled(v: unknown): unknown {
    if (Array.isArray(v)) return v.map((x) => this.#filled(x));
    if (v === null || typeof v !== "object") return this.#value(v);
    return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, this.#filled(x)]));
  }

  /** Each member of a pattern is there, and as it says; a new name stands for what it finds from now on. */
  #fits(pattern: Json, got: Json): void {
    for (const [name, want] of Object.entries(pattern)) {
      const bound =
        typeof want !== "string" || !want.startsWith("$") || this.#vars.has(want) || want in this.#scenario.values;
      if (!bound) {
        assert.ok(name in got, `${name} is missing: ${JSON.stringify(got)}`);
        this.#vars.set(want as string, got[name]);
      } else assert.deepEqual(got[name], this.#filled(want), `${name} of ${JSON.stringify(got)}`);
    }
  }
}
