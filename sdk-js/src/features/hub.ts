import type { ClientFrame, ServerFrame } from "../protocol/frames.js";
import type { Downward, Upward } from "../protocol/notes.js";
import type { End, Link, LinkOptions, Transport } from "../transport/transport.js";

/** The one connection of all tabs, in the tab that leads. */
export interface Hub {
  receive(note: Upward): void;
  /** A tab is gone, with all its links. */
  gone(tab: string): void;
  /** Another tab leads from now on. */
  stop(): void;
}

export interface HubOptions {
  transport: Transport;
  options: Omit<LinkOptions, "url">;
  tell(tab: string, note: Omit<Downward, "leader">): void;
  /** A tab is heard of for the first time. */
  met(tab: string): void;
}

/** Carries the links of all tabs over one: each has its own ids, and its own subscriptions and memberships. */
export function hub({ transport, options, tell, met }: HubOptions): Hub {
  const tabs = new Map<string, string>(); // of each link
  let shared: Link | undefined;
  let tokened = false; // whoever opened it had a token
  let lastId = 0;
  let open = false; // the node has said something on it
  let asked = new Map<number, { tab: string; link?: string; id: number; op: string }>();
  let owners = new Map<string, { link: string; leave: "leave" | "unsubscribe" }>(); // by the server's names

  const to = (link: string, note: Omit<Downward, "leader" | "link">) => {
    const tab = tabs.get(link);
    if (tab) tell(tab, { link, ...note });
  };

  function forget(): void {
    shared = undefined;
    open = false;
    asked = new Map();
    owners = new Map();
  }

  function end(end: End): void {
    forget();
    for (const link of tabs.keys()) to(link, { end });
    tabs.clear();
  }

  function answer(frame: ServerFrame): void {
    open = true;
    const question = asked.get(frame.id!);
    if (!question) {
      if (!frame.sub) for (const link of tabs.keys()) to(link, { frame });
      else to(owners.get(frame.sub)?.link ?? "", { frame });
      return;
    }
    const { tab, link, id, op } = question;
    if (frame.op !== "accepted") asked.delete(frame.id!);
    if (!link) return tell(tab, {});
    if (frame.op === "subscribed" || frame.op === "joined") {
      const leave = frame.op === "joined" ? "leave" : "unsubscribe";
      owners.set(frame.sub!, { link, leave });
      if (!tabs.has(link)) drop(link); // it went meanwhile
    }
    if (op === "hello" && frame.code === "forbidden") isolate(link);
    else to(link, { frame: { ...frame, id } });
  }

  function isolate(link: string): void {
    to(link, { end: { code: 1006, reason: "another tab is somebody else", retryAfterMs: 0 }, alone: true });
    drop(link);
  }

  function numbered(tab: string, link: string | undefined, frame: ClientFrame): ClientFrame {
    if (frame.op === "unsubscribe" || frame.op === "leave") owners.delete(frame.sub);
    if (!("id" in frame)) return frame;
    asked.set(++lastId, { tab, link, id: frame.id, op: frame.op });
    return { ...frame, id: lastId };
  }

  /** A link is over: what it reads is of no use to anybody. */
  function drop(link: string): void {
    tabs.delete(link);
    for (const [sub, owner] of owners) {
      if (owner.link !== link) continue;
      owners.delete(sub);
      shared?.send([{ op: owner.leave, id: ++lastId, sub }]);
    }
    if (tabs.size) return;
    shared?.close();
    forget();
  }

  return {
    receive({ tab, link, url, frames, close }) {
      // A tab that is frozen may hear others, and nothing of the node: an open link has to answer.
      if (!link)
        return open
          ? shared!.send([numbered(tab, link, { op: "hello", id: 0, client: "tidewire-js" })])
          : tell(tab, {});
      if (close) return drop(link);
      const [first] = frames!;
      if (!tabs.has(link)) {
        if (first?.op !== "hello") return; // what is left of a link that has ended
        met(tab);
        tabs.set(link, tab);
        if (!open) to(link, {});
        if (shared && tokened !== !!first.token) return isolate(link);
        tokened = !!first.token;
      }
      shared ??= transport.open({ ...options, url: url! }, { frame: answer, end });
      shared.send(frames!.map((frame) => numbered(tab, link, frame)));
    },
    gone(tab) {
      for (const [link, owner] of tabs) if (owner === tab) drop(link);
    },
    stop() {
      shared?.close();
      end({ code: 1006, reason: "another tab goes on", retryAfterMs: 0 });
    },
  };
}
