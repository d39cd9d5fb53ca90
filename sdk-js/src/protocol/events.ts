/** A server-sent event; `event` is empty where only the id moved. */
export interface ServerEvent {
  event: string;
  data: string;
  id?: string;
}

/**
 * Reads a stream of events from chunks of bytes, however these are cut: also
 * between CR and LF, and inside a character.
 */
export function eventParser(): (chunk: Uint8Array) => ServerEvent[] {
  const decoder = new TextDecoder();
  let rest = ""; // an unfinished line
  let next: ServerEvent = { event: "", data: "" };

  return (chunk) => {
    const found: ServerEvent[] = [];
    // A CR at the end may be half of a CRLF: it waits for what follows.
    const lines = (rest + decoder.decode(chunk, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop()!;
    for (const line of lines) {
      if (line === "") {
        if (!next.data) next.event = ""; // an event without data is none, but its id counts
        if (next.data || next.id !== undefined) found.push(next);
        next = { event: "", data: "" };
        continue;
      }
      const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line)!;
      if (name === "data") next.data += (next.data && "\n") + value;
      else if (name === "event" || name === "id") next[name] = value!;
    }
    return found;
  };
}
