import { idle, type MachineEvent, type Policy, transition } from "../core/connection.js";
import { asError, errorOf, TidewireError } from "../error.js";
import { verdictOf } from "../protocol/close.js";
import { milliseconds } from "../protocol/duration.js";
import type { ClientFrame, ServerFrame } from "../protocol/frames.js";
import type { End, Link, LinkOptions, Transport } from "../transport/transport.js";
import type { ClientEvents, ConnectionState, TransportName } from "../types.js";
import type { Emitter } from "./emitter.js";
import { timers } from "./timers.js";

/** What lives on a connection through its links, such as the publisher. */
export interface Part {
  /** A link is open. */
  up(): void;
  /** It is gone: no answer to what was asked on it comes any more. */
  down?(): void;
  /** There will be no further link. */
  end(error: TidewireError): void;
  /** Comes to its end in good order, before the client does. */
  finish?(): Promise<unknown>;
}

type Unnumbered<F> = F extends { id: number } ? Omit<F, "id"> : never;
export type Asked = Unnumbered<ClientFrame>;

export interface Connection {
  readonly state: ConnectionState;
  readonly transport: TransportName | undefined;
  /** Why it is closed or has failed. */
  readonly failure: TidewireError | undefined;
  /** What it returns takes the part off again. */
  attach(part: Part): () => void;
  /** Connects, where nothing has yet, or after it has failed. */
  connect(): void;
  /** Tries at once, unless the server said how long to wait; a link that there is may be dead. */
  wake(): void;
  /** What is asked in one go leaves together. Without a link there is no answer. */
  ask(frame: Asked, answer?: (frame: ServerFrame) => void): void;
  tell(frame: ClientFrame): void;
  /** Takes the frames of what the server calls so, as long as this link lasts; without `fn` nobody does. */
  hear(sub: string, fn?: (frame: ServerFrame) => void): void;
  /** Resolves once all that is attached has come to its end. */
  finish(): Promise<unknown>;
  close(): void;
}

export interface ConnectionOptions extends LinkOptions {
  /** The addresses; `url` is the one in use. */
  bases: string[];
  transports: Transport[];
  policy: Omit<Policy, "transports">;
  events: Emitter<ClientEvents>;
}

/** How long a link may take to open: two tries are over within 6 s where there is another transport. */
const openMs = 10_000;
const openShortMs = 2_900;
/** How often a better transport is tried again. */
const upgradeMs = 60_000;
/** How long the answer to a sign of life may take. */
const answerMs = 10_000;
/** How long before its end a token is renewed, but no sooner than in the last fifth of its life. */
const renewMs = 30_000;
/** And never at once, for a callback may give what is over already. */
const renewLeastMs = 1000;

const nothing = () => {};

export function connection(options: ConnectionOptions): Connection {
  const { transports, policy, tokens, events, clock } = options;
  const parts = new Set<Part>();
  const timer = timers(clock);
  const hearers = new Map<unknown, (frame: ServerFrame) => void>(); // by the id of a question, or the server's name
  let machine = idle;
  let link: Link | undefined; // the one in use
  let opening: { link?: Link } | undefined; // what is to become of it
  let outgoing: ClientFrame[] = []; // in this go
  let lastId = 0;
  let failure: TidewireError | undefined;
  let retryAfterMs: number | undefined; // as the last `closing` said
  let heard = false;
  let pingMs = 25_000;

  function happen(event: MachineEvent, error?: TidewireError, end?: End): void {
    const previous = machine.state;
    const [next, effect] = transition(machine, event, { ...policy, transports: transports.length });
    machine = next;
    const { state, attempt } = machine;
    const retryInMs = effect?.do === "wait" ? effect.ms : undefined;
    if (effect?.do === "open") open(machine.rank, lose);
    else if (effect?.do === "end") {
      failure = error;
      drop();
      for (const part of parts) part.end(error!);
    } else if (effect) timer.set("wait", effect.ms, () => happen({ type: "due" }));
    if (state !== previous || effect?.do === "wait") {
      events.emit("state", { state, previous, reason: end?.reason, code: end?.code, attempt, retryInMs });
    }
  }

  /** Lets go of the link there is, or is being opened. */
  function drop(): void {
    giveUp();
    timer.clear();
    hearers.clear();
    outgoing = [];
    if (!link) return;
    link.close();
    link = undefined;
    for (const part of parts) part.down?.();
  }

  function lose(end: End, error?: TidewireError): void {
    const opened = link;
    const { code, reason, blocked } = end;
    let verdict = verdictOf(code);
    if (verdict === "renew" && !tokens.spoil("unauthorized")) verdict = "fatal";
    error ??= new TidewireError(verdict === "retry" ? "network" : "unauthorized", reason || `closed with ${code}`);
    drop();
    const { bases, url } = options;
    // Any other one: in turn, it could be the same one for ever that a transport of several is tried with.
    if (!opened) options.url = pick(bases.filter((base) => base !== url)) ?? url;
    if (!opened || verdict === "fatal") events.emit("error", error);
    const hintMs = end.retryAfterMs ?? retryAfterMs;
    retryAfterMs = undefined;
    const event = { at: clock.now(), random: clock.random(), verdict, retryAfterMs: hintMs, blocked };
    happen({ type: "lost", ...event }, error, end);
  }

  const pick = (urls: string[]): string | undefined => urls[Math.floor(clock.random() * urls.length)];

  /** Opens a link and says who is calling. */
  function open(rank: number, failed: (end: End, error?: TidewireError) => void): void {
    const transport = transports[rank]!;
    const id = ++lastId;
    const mine: typeof opening = {};
    const fail = (end: End, error?: TidewireError) => {
      giveUp();
      failed(end, error);
    };
    const call = (token: string | undefined) => {
      if (opening !== mine) return;
      const fresh = transport.open(
        { ...options },
        {
          end: (end) => (link === fresh ? lose : fail)(end),
          frame(frame) {
            if (link === fresh) return receive(frame);
            const answer = frame.id === id;
            // A node that asks nobody says welcome by itself, and refuses a token after it.
            if (frame.op === "welcome" && (answer || !token)) adopt(fresh, rank, frame);
            else if (frame.op === "error" && answer) {
              const error = errorOf(frame);
              const { message: reason, retryAfterMs } = error;
              fail({ code: error.retryable ? 1006 : refusedCode(frame.reason), reason, retryAfterMs }, error);
            }
          },
        },
      );
      mine.link = fresh;
      fresh.send([{ op: "hello", id, client: "tidewire-js", token }]);
    };
    opening = mine;
    timer.set("open", transports.length > 1 ? openShortMs : openMs, () =>
      fail({ code: 4002, reason: `${transport.name} did not open in time` }),
    );
    tokens
      .get()
      .then(call)
      .catch((thrown) => {
        const error = asError(thrown, "network");
        if (opening === mine) fail({ code: 1006, reason: error.message }, error);
      });
  }

  function giveUp(): void {
    opening?.link?.close();
    opening = undefined;
  }

  /** Tries the best transport beside the one in use, after a while. */
  const upgrade = () => timer.set("open", upgradeMs, () => open(0, upgrade));

  function adopt(fresh: Link, rank: number, { connection, node, ping }: ServerFrame): void {
    opening = undefined;
    drop();
    link = fresh;
    happen({ type: "opened", at: clock.now(), rank });
    events.emit("connected", { connection: connection!, node, transport: transports[rank]!.name });
    if (rank) upgrade();
    pingMs = milliseconds(ping) ?? pingMs;
    listen();
    renew();
    for (const part of parts) part.up();
  }

  /** Browsers do not show the server's pings: a link that was silent for so long is asked for a sign of life. */
  function listen(ms = pingMs, silent = probe): void {
    heard = false;
    timer.set("listen", ms, () => (heard ? listen() : silent()));
  }

  function probe(): void {
    self.ask({ op: "hello", client: "tidewire-js" });
    listen(answerMs, () => lose({ code: 4002, reason: "the node is silent" }));
  }

  /** Brings a fresh token before the one in use ends. */
  function renew(): void {
    if (tokens.expiresAt === undefined) return;
    const left = tokens.expiresAt - clock.now();
    timer.set("renew", Math.max(renewLeastMs, left - Math.min(renewMs, left / 5)), () => {
      if (!tokens.spoil("expiring")) return;
      const mine = link;
      tokens.get().then(
        (token) => {
          if (link !== mine) return;
          self.ask({ op: "auth", token: token! }, complain);
          renew();
        },
        (thrown) => events.emit("error", asError(thrown, "unauthorized")), // the node ends the connection in time
      );
    });
  }

  function complain(frame: ServerFrame): void {
    if (frame.op === "error") events.emit("error", errorOf(frame));
  }

  function receive(frame: ServerFrame): void {
    const { op, id, sub } = frame;
    const hear = hearers.get(id ?? sub);
    heard = true;
    if (hear) {
      if (op !== "accepted") hearers.delete(id); // what it announces has the same id
      hear(frame);
    } else if (op === "closing") retryAfterMs = milliseconds(frame.retry_after);
    else if (!sub) complain(frame);
  }

  const self: Connection = {
    get state() {
      return machine.state;
    },
    get transport() {
      return link && transports[machine.rank]!.name;
    },
    get failure() {
      return failure;
    },
    attach(part) {
      parts.add(part);
      return () => void parts.delete(part);
    },
    connect() {
      failure = undefined;
      happen({ type: "connect" });
    },
    wake: () => (link ? probe() : happen({ type: "wake" })),
    ask(frame, answer = nothing) {
      if (!link) return;
      hearers.set(++lastId, answer);
      // Both stand in front, for a line that breaks later on.
      self.tell(Object.assign({ op: frame.op, id: lastId }, frame) as ClientFrame);
    },
    tell(frame) {
      if (link && outgoing.push(frame) === 1) queueMicrotask(() => link?.send(outgoing.splice(0)));
    },
    hear(sub, fn) {
      if (fn) hearers.set(sub, fn);
      else hearers.delete(sub);
    },
    finish: () => Promise.all([...parts].map((part) => part.finish?.())),
    close: () => happen({ type: "close" }, new TidewireError("closed", "the client is closed")),
  };
  return self;
}

/** The close code of a hello that was refused. */
export const refusedCode = (reason: unknown): number => (reason === "expired" ? 4003 : 4501);
