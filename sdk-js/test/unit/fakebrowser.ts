import type { Clock } from "../../src/client/clock.js";
import type { FakeClock } from "../../src/testing/index.js";

/** What tabs of one origin share, in virtual time. */
export interface FakeBrowser {
  tab(): FakeTab;
}

export interface FakeTab {
  readonly clock: Clock;
  readonly locks: Pick<LockManager, "request">;
  readonly BroadcastChannel: typeof BroadcastChannel;
  /** A class of sockets that end with the tab. */
  socket(of: typeof WebSocket): typeof WebSocket;
  readonly dead: boolean;
  /** It is gone, without a word. */
  die(): void;
  /** Nothing runs in it any more, until it thaws. */
  freeze(): void;
  thaw(): void;
}

interface Holder {
  tab: FakeTab;
  grant(): void;
  lose(reason: Error): void;
  held: boolean;
}

export function fakeBrowser(clock: FakeClock): FakeBrowser {
  const queues = new Map<string, Holder[]>(); // of each lock; the first that holds it, holds it
  const channels = new Set<{ name: string; hear(data: unknown): void }>();

  const next = (name: string) => {
    const [first] = queues.get(name) ?? [];
    if (!first || first.held) return;
    first.held = true;
    clock.after(0, first.grant);
  };
  const leave = (name: string, holder: Holder) => {
    queues.set(
      name,
      (queues.get(name) ?? []).filter((h) => h !== holder),
    );
    next(name);
  };

  return {
    tab() {
      let state: "live" | "frozen" | "dead" = "live";
      const due: Array<() => void> = [];
      const cuts: Array<() => void> = [];
      const run = (fn: () => void) => {
        if (state === "live") fn();
        else if (state === "frozen") due.push(fn);
      };
      const request = (name: string, { signal, steal }: LockOptions, callback: () => unknown) =>
        new Promise<unknown>((resolve, reject) => {
          const holder: Holder = {
            tab,
            held: false,
            grant: () =>
              run(() => {
                signal?.removeEventListener("abort", abort);
                Promise.resolve(callback()).then((value) => {
                  leave(name, holder);
                  resolve(value);
                });
              }),
            lose: (reason) => run(() => reject(reason)),
          };
          const abort = () => {
            leave(name, holder);
            reject(new Error("aborted"));
          };
          if (signal?.aborted) return abort();
          signal?.addEventListener("abort", abort);
          const queue = queues.get(name) ?? [];
          if (steal && queue[0]?.held) queue.shift()!.lose(new Error("stolen"));
          queues.set(name, steal ? [holder, ...queue] : [...queue, holder]);
          next(name);
        });
      class Channel {
        onmessage: ((e: { data: unknown }) => void) | null = null;
        readonly #end: { name: string; hear(data: unknown): void };
        constructor(name: string) {
          this.#end = { name, hear: (data) => run(() => this.onmessage?.({ data })) };
          channels.add(this.#end);
        }
        postMessage(message: unknown) {
          if (!channels.has(this.#end)) throw new Error("the channel is closed");
          if (state === "dead") return;
          for (const end of channels) {
            if (end === this.#end || end.name !== this.#end.name) continue;
            const data = structuredClone(message);
            clock.after(1, () => channels.has(end) && end.hear(data));
          }
        }
        close() {
          channels.delete(this.#end);
        }
      }
      const tab: FakeTab = {
        get dead() {
          return state === "dead";
        },
        clock: { ...clock, now: clock.now, random: clock.random, after: (ms, fn) => clock.after(ms, () => run(fn)) },
        locks: { request } as unknown as Pick<LockManager, "request">,
        BroadcastChannel: Channel as unknown as typeof BroadcastChannel,
        socket: (of) =>
          class extends (of as unknown as new (url: string, protocol: string) => { close(code: number): void }) {
            constructor(url: string, protocol: string) {
              super(url, protocol);
              cuts.push(() => this.close(1001));
              if (state === "dead") this.close(1001);
            }
          } as unknown as typeof WebSocket,
        die() {
          state = "dead";
          for (const cut of cuts) cut();
          for (const [name, queue] of queues) for (const h of queue) if (h.tab === tab) leave(name, h);
        },
        freeze() {
          state = "frozen";
        },
        thaw() {
          state = "live";
          for (const fn of due.splice(0)) fn();
        },
      };
      return tab;
    },
  };
}
