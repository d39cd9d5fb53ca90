import type { WireGap } from "../protocol/frames.js";
import type { WireMessage } from "../protocol/message.js";
import type { Position } from "../protocol/position.js";

/** What came of a subscription, in its order. */
export type Item = { message: WireMessage } | { cursor: string } | { gap: WireGap };

/** What a subscription has received and not handed out, and where it stands: after the last message handed out. */
export interface Inbox {
  items: Item[];
  position?: Position;
  /** Handed out since the server was last given credit for it. */
  owed: number;
  /** The last offsets handed out, by partition. */
  seen: Map<number, number>;
  /** What has to be seen for the reader to have caught up. */
  goal?: Map<number, number>;
}

export const newInbox = (): Inbox => ({ items: [], owed: 0, seen: new Map() });

export function putItems(inbox: Inbox, items: Item[]): void {
  // A cursor takes the place of the one before: a reader that stands still does not gather them.
  const last = inbox.items.at(-1);
  if (last && "cursor" in last && "cursor" in items[0]!) inbox.items.pop();
  inbox.items.push(...items);
  settleCursor(inbox);
}

/**
 * Hands the next message or gap out. A cursor counts as soon as all before it is
 * handed out, and says what `after` said till then.
 */
export function takeItem(inbox: Inbox): Exclude<Item, { cursor: string }> | undefined {
  const item = inbox.items.shift() as Exclude<Item, { cursor: string }> | undefined;
  if (!item) return undefined;
  if ("gap" in item) {
    inbox.seen.clear();
    inbox.position = { cursor: item.gap.cursor, after: {} };
  } else {
    const { partition, offset } = item.message;
    if (inbox.position) inbox.position.after[partition] = offset;
    inbox.seen.set(partition, offset);
    inbox.owed++;
  }
  settleCursor(inbox);
  return item;
}

function settleCursor(inbox: Inbox): void {
  const next = inbox.items[0];
  if (!next || !("cursor" in next)) return;
  inbox.items.shift();
  inbox.position = { cursor: next.cursor, after: {} };
}

/** Forgets what was not handed out: the server sends it again from the position. */
export function clearItems(inbox: Inbox): void {
  inbox.items = [];
  inbox.owed = 0;
  inbox.goal = undefined;
}

/** Whether all that was kept when the goal was set is handed out. */
export const reached = ({ goal, seen }: Inbox): boolean =>
  goal !== undefined && [...goal].every(([partition, offset]) => (seen.get(partition) ?? -1) >= offset);
