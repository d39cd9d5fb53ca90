import { idle, type MachineEvent, type Policy, transition } from "../core/connection.js";
import { asError, errorOf, TidewireError } from "../error.js";
import { verdictOf } from "../protocol/close.js";
import { milliseconds } from "../protocol/duration.js";
import type { ClientFrame, ServerFrame } from "../protocol/frames.js";
import type { End, Link, LinkOptions, Transport } from "../transport/transport.js";
import type { ClientEvents, ConnectionState, TransportName } from "../types.js";
import type { Emitter } from "./emitter.js";
import { handshake } from "./handshake.js";
import type { Tokens } from "./tokens.js";

/** What lives on a connection through its links, such as the publisher. */
export interface Part {
  /** A link is open. */
  up(): void;
  /** It is gone: no answer to what was asked on it comes any more. */
  down(): void;
  /** A frame that answers nothing. */
  push?(frame: ServerFrame): void;
  /** There will be no further link. */
  end(error: TidewireError): void;
}

type Unnumbered<F> = F extends { id: number } ? Omit<F, "id"> : never;
export type Asked = Unnumbered<ClientFrame>;
export type Question = [frame: Asked, answer: (frame: ServerFrame) => void];

export interface Connection {
  readonly state: ConnectionState;
  readonly transport: TransportName | undefined;
  /** Why it is closed or has failed. */
  readonly failure: TidewireError | undefined;
  /** What it returns takes the part off again. */
  join(part: Part): () => void;
  /** Begins to connect, where nothing has yet. */
  want(): void;
  /** Connects; also anew, after it has failed. */
  connect(): void;
  /** Tries at once, unless the server said how long to wait; a link that there is may be dead. */
  wake(): void;
  ask(questions: Question[]): void;
  tell(frame: ClientFrame): void;
  close(): void;
}

export interface ConnectionOptions {
  transports: Transport[];
  policy: Policy;
  tokens: Tokens;
  events: Emitter<ClientEvents>;
  link: Omit<LinkOptions, "url">;
  base(): string;
  /** Takes the next address: the last one could not be reached. */
  nextBase(): void;
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

export function connection(options: ConnectionOptions): Connection {
  const { transports, policy, tokens, events } = options;
  const { clock } = options.link;
  const parts = new Set<Part>();
  const timers = new Map<string, () => void>(); // what cancels each
  let machine = idle;
  let link: Link | undefined; // the one in use
  let answers = new Map<number, (frame: ServerFrame) => void>();
  let lastId = 0;
  let failure: TidewireError | undefined;
  let retryAfterMs: number | undefined; // as the last `closing` said
  let heard = false;
  let pingMs = 25_000;

  const later = (name: string, ms: number, fn: () => void) => {
    timers.get(name)?.();
    timers.set(name, clock.after(ms, fn));
  };

  function happen(event: MachineEvent, end?: End): void {
    const previous = machine.state;
    const [next, effect] = transition(machine, event, policy);
    machine = next;
    const { state, attempt } = machine;
    const retryInMs = effect?.do === "wait" ? effect.ms : undefined;
    if (effect?.do === "end") {
      drop();
      if (event.type === "close") failure = new TidewireError("closed", "the client is closed");
      for (const part of parts) part.end(failure!);
    } else if (effect?.do === "open") open();
    else if (effect) later("wait", effect.ms, () => happen({ type: "due" }));
    if (state !== previous || effect?.do === "wait") {
      events.emit("state", { state, previous, reason: end?.reason, code: end?.code, attempt, retryInMs });
    }
  }

  /** Lets go of the link there is, or is being opened. */
  function drop(): void {
    for (const cancel of timers.values()) cancel();
    timers.clear();
    answers = new Map();
    const gone = link;
    link = undefined;
    gone?.close();
    if (gone) for (const part of parts) part.down();
  }

  function lose(end: End, error?: TidewireError): void {
    const opened = link !== undefined;
    let verdict = verdictOf(end.code);
    if (verdict === "renew") {
      tokens.spoil("unauthorized");
      if (!tokens.renewable) verdict = "fatal";
    }
    const code = verdict === "retry" ? "network" : "unauthorized";
    failure = error ?? new TidewireError(code, end.reason || `the connection ended with ${end.code}`);
    drop();
    if (!opened) options.nextBase();
    if (!opened || verdict === "fatal") events.emit("error", failure);
    const hint = end.retryAfterMs ?? retryAfterMs;
    retryAfterMs = undefined;
    const { blocked } = end;
    happen({ type: "lost", at: clock.now(), random: clock.random(), verdict, retryAfterMs: hint, blocked }, end);
  }

  function shake(rank: number, failed: (end: End, error?: TidewireError) => void): void {
    const cancel = handshake({
      transport: transports[rank]!,
      options: { ...options.link, url: options.base() },
      tokens,
      id: ++lastId,
      timeoutMs: transports.length > 1 ? openShortMs : openMs,
      opened: (fresh, welcome) => adopt(fresh, rank, welcome),
      failed,
      frame: receive,
      end: lose,
    });
    timers.set("handshake", cancel);
  }

  const open = () => shake(machine.rank, lose);

  /** Tries the best transport beside the one in use. */
  const upgrade = () => shake(0, () => later("upgrade", upgradeMs, upgrade));

  function adopt(fresh: Link, rank: number, { connection, node, ping }: ServerFrame): void {
    timers.delete("handshake");
    drop();
    link = fresh;
    happen({ type: "opened", at: clock.now(), rank });
    events.emit("connected", { connection: connection!, node, transport: transports[rank]!.name });
    if (rank) later("upgrade", upgradeMs, upgrade);
    pingMs = milliseconds(ping) ?? pingMs;
    beat();
    renew();
    for (const part of parts) part.up();
  }

  /** Browsers do not show the server's pings: a link that was silent for so long is asked for a sign of life. */
  function beat(): void {
    heard = false;
    later("beat", pingMs, () => (heard ? beat() : probe()));
  }

  function probe(): void {
    heard = false;
    self.ask([[{ op: "hello", client: "tidewire-js" }, () => {}]]);
    later("beat", answerMs, () => (heard ? beat() : lose({ code: 4002, reason: "the node is silent" })));
  }

  /** Brings a fresh token before the one in use ends. */
  function renew(): void {
    if (!tokens.renewable || tokens.expiresAt === undefined) return;
    const left = tokens.expiresAt - clock.now();
    later("renew", Math.max(renewLeastMs, left - Math.min(renewMs, left / 5)), () => {
      tokens.spoil("expiring");
      const mine = link;
      tokens.get().then(
        (token) => {
          if (link !== mine) return;
          self.ask([[{ op: "auth", token: token! }, refusal]]);
          renew();
        },
        (thrown) => events.emit("error", asError(thrown, "unauthorized")), // the node ends the connection in time
      );
    });
  }

  const refusal = (frame: ServerFrame) => {
    if (frame.op === "error") events.emit("error", errorOf({ ...frame }));
  };

  function receive(frame: ServerFrame): void {
    heard = true;
    const answer = answers.get(frame.id!);
    if (answer) {
      if (frame.op !== "accepted") answers.delete(frame.id!); // what it announces has the same id
      answer(frame);
    } else if (frame.op === "closing") retryAfterMs = milliseconds(frame.retry_after);
    else if (frame.sub) for (const part of parts) part.push?.(frame);
    else refusal(frame);
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
    join(part) {
      parts.add(part);
      return () => void parts.delete(part);
    },
    want: () => machine.state === "idle" && happen({ type: "connect" }),
    connect: () => happen({ type: "connect" }),
    wake: () => (link ? probe() : happen({ type: "wake" })),
    ask(questions) {
      link?.send(
        questions.map(([frame, answer]) => {
          answers.set(++lastId, answer);
          // The id stands in front, for a line that breaks later on.
          const { op, ...rest } = frame;
          return { op, id: lastId, ...rest } as ClientFrame;
        }),
      );
    },
    tell: (frame) => link?.send([frame]),
    close: () => happen({ type: "close" }),
  };
  return self;
}
