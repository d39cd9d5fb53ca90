import type { Core, Feature } from "../client/feature.js";
import type { ClientFrame } from "../protocol/frames.js";
import type { Downward, Upward } from "../protocol/notes.js";
import { uuidv7 } from "../protocol/uuid.js";
import type { LinkEvents, Transport } from "../transport/transport.js";
import { type Hub, hub } from "./hub.js";

export interface SharedTabsOptions {
  /** Tabs share with those of the same name and the same addresses. */
  name?: string;
  locks?: Pick<LockManager, "request">;
  BroadcastChannel?: typeof BroadcastChannel;
}

/**
 * All tabs of a page's origin share the WebSocket of one of them; when that goes, another
 * goes on. Where there are no Web Locks, as in a page without TLS, each has its own.
 */
export function sharedTabs({
  name = "",
  locks = globalThis.navigator?.locks,
  BroadcastChannel = globalThis.BroadcastChannel,
}: SharedTabsOptions = {}): Feature<"transport"> {
  return {
    name: "transport",
    install(core) {
      const { transports } = core;
      const [first] = transports;
      if (first!.name === "websocket" && locks && BroadcastChannel) {
        transports[0] = shared(first!, core, name, locks, BroadcastChannel);
      }
    },
  };
}

/** How long the leading tab, and the node behind it, may take to answer: it may be frozen. */
const patienceMs = 4000;

interface Local {
  url: string;
  events: LinkEvents;
  /** What it has sent, until the leading tab has heard of it. */
  early?: ClientFrame[];
  leader?: string;
  /** Something has come of it. */
  answered?: boolean;
}

/** A tab's side of sharing: its links go by the leading tab, and it leads itself once it holds the lock. */
function shared(
  transport: Transport,
  options: Core,
  name: string,
  locks: Pick<LockManager, "request">,
  Channel: typeof BroadcastChannel,
): Transport {
  const { clock, signal } = options;
  const tab = uuidv7(clock.now());
  const bases = [...options.bases].sort().join();
  const id = (part: string) => `tidewire:${name}:${bases}:${part}`;
  const links = new Map<string, Local>();
  let lastLink = 0;
  let leading: Hub | undefined;
  let leader: string | undefined; // the one that was heard of last
  let ready = false; // others can tell whether this tab is still there
  let alone = false;
  let doubt: (() => void) | undefined; // cancels what happens unless the leading tab is heard
  let queued = new AbortController();
  let channels: Record<"news" | "hub" | "mine", BroadcastChannel> | undefined;

  const up = (note: Omit<Upward, "tab">) => {
    const whole = { tab, ...note };
    if (leading) leading.receive(whole);
    else channels!.hub.postMessage(whole);
  };

  /** Tells the leading tab of a link, which may be for the second time. */
  function introduce(link: string, { url, early }: Local): void {
    if (!early?.length || !ready) return;
    up({ link, url, frames: early });
    if (!leading) expect();
  }

  /** Takes the lead unless the leading tab is heard in time. */
  function expect(): void {
    const from = clock.now();
    doubt ??= clock.after(patienceMs, () => {
      doubt = undefined;
      // A tab that was frozen itself has to listen first.
      if (clock.now() - from > 2 * patienceMs) look();
      else lead(true);
    });
  }

  function look(): void {
    if (leading || !ready || globalThis.document?.hidden) return;
    up({});
    expect();
  }

  function hear({ leader: from, link, frame, end, alone: isolated }: Downward): void {
    if (leader && from !== leader) return; // it led before, and was frozen meanwhile
    leader = from;
    doubt?.();
    doubt = undefined;
    alone ||= !!isolated;
    const local = links.get(link!);
    if (!local) return;
    local.early = undefined;
    local.leader = from;
    local.answered ||= !!(frame || end);
    if (frame) local.events.frame(frame);
    if (end) {
      links.delete(link!);
      local.events.end(end);
    }
  }

  /** Another tab leads, or this one: links to the one before are over. */
  function follow(next: string): void {
    leader = next;
    for (const [link, local] of links) {
      if (local.early) introduce(link, local);
      else if (local.leader !== next) {
        links.delete(link);
        local.events.end({ code: 1006, reason: "another tab leads", retryAfterMs: 0 });
      }
    }
  }

  function begin(): Promise<void> {
    const me = uuidv7(clock.now());
    const others = new Map<string, BroadcastChannel>();
    const over = new AbortController();
    const met = (other: string) => {
      if (other === tab || others.has(other)) return;
      others.set(other, new Channel(id(other)));
      // Who gets a tab's own lock knows that it is gone.
      const gone = () => {
        mine.gone(other);
        others.get(other)!.close();
        others.delete(other);
      };
      locks.request(id(other), { signal: over.signal }, gone).catch(() => {});
    };
    const tell = (other: string, note: Omit<Downward, "leader">) => {
      const whole = { leader: me, ...note };
      if (other === tab) queueMicrotask(() => hear(whole));
      else others.get(other)?.postMessage(whole);
    };
    const mine = hub({ transport, options, tell, met });
    leading = mine;
    doubt?.();
    doubt = undefined;
    channels!.hub.onmessage = ({ data }) => mine.receive(data as Upward);
    channels!.news.postMessage(me);
    follow(me);
    return new Promise<void>((resolve) => {
      retire = () => {
        retire = () => {};
        leading = undefined;
        channels!.hub.onmessage = null;
        mine.stop();
        over.abort();
        for (const channel of others.values()) channel.close();
        resolve();
      };
    });
  }
  let retire = () => {};

  /** Leads as soon as nobody else does, or at once where that one does not react. */
  function lead(steal = false): void {
    queued.abort();
    queued = new AbortController();
    const { signal: waiting } = queued;
    locks
      .request(id("lead"), steal ? { steal } : { signal: waiting }, () => (signal.aborted ? undefined : begin()))
      .catch(() => {}) // it is stolen, or not waited for any more
      .then(() => {
        if (waiting.aborted) return;
        retire();
        if (!signal.aborted) lead();
      });
  }

  function start(): void {
    if (channels) return;
    channels = { news: new Channel(id("news")), hub: new Channel(id("hub")), mine: new Channel(id(tab)) };
    channels.news.onmessage = ({ data }) => follow(data as string);
    channels.mine.onmessage = ({ data }) => hear(data as Downward);
    globalThis.document?.addEventListener("visibilitychange", look, { signal });
    signal.addEventListener("abort", () => {
      doubt?.();
      retire();
      queued.abort();
      for (const channel of Object.values(channels!)) channel.close();
    });
    const hold = () => {
      ready = true;
      for (const [link, local] of links) introduce(link, local);
      lead();
      return new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    };
    locks.request(id(tab), { signal }, hold).catch(() => {});
  }

  return {
    name: transport.name,
    open(given, events) {
      if (alone || signal.aborted) return transport.open(given, events);
      const link = `${tab}/${++lastLink}`;
      const local: Local = { url: given.url, events, early: [] };
      links.set(link, local);
      start();
      return {
        send(frames) {
          if (!local.early) return up({ link, frames });
          local.early.push(...frames);
          introduce(link, local);
        },
        close() {
          if (!links.delete(link) || !ready || signal.aborted) return;
          up({ link, close: true });
          // The leading tab said that it is about to connect, and did not in time.
          if (!local.answered && !leading) queueMicrotask(() => signal.aborted || lead(true));
        },
      };
    },
  };
}
