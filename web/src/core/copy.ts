import { isText, valueText } from "./messages.js";
import type { Message } from "./wire.js";

/** Text as one word of a shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** The call that reads a record. */
export const asCurl = (origin: string, m: Message): string =>
  `curl -s ${quoted(`${origin}/topics/${encodeURIComponent(m.topic)}?partition=${m.partition}&offset=${m.offset}&limit=1`)}`;

/** The command that publishes a record like this one. */
export function asCommand(origin: string, m: Message): string {
  const key = m.key === null ? "" : ` --key ${quoted(m.key)}`;
  const headers = Object.entries(m.headers).map(([name, value]) => ` --header ${quoted(`${name}=${value}`)}`);
  return `tidewire publish ${quoted(m.topic)} --server ${quoted(origin)}${key}${headers.join("")} <<< ${quoted(valueText(m).replaceAll("\n", " "))}`;
}

/** The line of the SDK that publishes a record like this one. */
export function asScript(m: Message): string {
  const options = {
    ...(m.key === null ? {} : { key: m.key }),
    ...(Object.keys(m.headers).length ? { headers: m.headers } : {}),
    ...(m.content_type === "application/json" ? {} : { contentType: m.content_type }),
  };
  const value = isText(m) ? JSON.stringify(m.value) : valueText(m);
  return `await tide.publish(${JSON.stringify(m.topic)}, ${value}, ${JSON.stringify(options)});`;
}
