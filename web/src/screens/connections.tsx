import { useSignal } from "@preact/signals";
import { ago, count, rate, several, unknown } from "../core/format.js";
import type { Connections as Answer, Connection } from "../core/wire.js";
import { api, at, token } from "../live/api.js";
import { usePolled } from "../live/poll.js";
import { nodes } from "../live/pulse.js";
import { route, setQuery } from "../live/route.js";
import { Confirm } from "../parts/dialog.js";
import { Field } from "../parts/field.js";
import { type Column, Table } from "../parts/table.js";
import { Empty, Fact, Refusal, Waiting } from "../parts/words.js";
import { now } from "../shell/time.js";

const everyMs = 2000;

export function Connections() {
  const { node = "", principal = "", transport = "" } = route.value.query;
  const asked = useSignal<Connection | undefined>(undefined);
  const { polled, again } = usePolled(
    `${node} ${principal} ${token.value}`,
    (signal) =>
      api<Answer>("/connections/", { query: { node: node || undefined, principal: principal || undefined }, signal }),
    everyMs,
  );
  const { value, error } = polled.value;
  const all = value?.connections ?? [];
  const list = all.filter((c) => !transport || c.transport === transport);
  const sum = (f: (c: Connection) => number) => list.reduce((s, c) => s + f(c), 0);
  return (
    <section aria-labelledby="connections-title">
      <h2 id="connections-title">Connections</h2>
      <Refusal error={error} />
      {value?.missing && value.missing.length > 0 && (
        <p class="refusal">These nodes did not answer, and their connections are missing: {value.missing.join(", ")}</p>
      )}
      <form class="row" role="search" onSubmit={(e) => e.preventDefault()}>
        <Field label="Node">
          {(id) => (
            <select id={id} value={node} onChange={(e) => setQuery({ node: e.currentTarget.value })}>
              <option value="">all</option>
              {nodes.value.value?.nodes.map((n) => (
                <option key={n.id} value={n.name}>
                  {n.name}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Transport">
          {(id) => (
            <select id={id} value={transport} onChange={(e) => setQuery({ transport: e.currentTarget.value })}>
              <option value="">all</option>
              <option value="websocket">WebSocket</option>
              <option value="sse">server-sent events</option>
            </select>
          )}
        </Field>
        <Field label="Principal">
          {(id) => (
            <input
              id={id}
              type="search"
              value={principal}
              spellcheck={false}
              autocapitalize="none"
              onChange={(e) => setQuery({ principal: e.currentTarget.value })}
            />
          )}
        </Field>
      </form>
      {value && (
        <dl class="facts">
          <Fact name="Connections">{count(list.length)}</Fact>
          <Fact name="WebSocket">{count(list.filter((c) => c.transport === "websocket").length)}</Fact>
          <Fact name="Server-sent events">{count(list.filter((c) => c.transport === "sse").length)}</Fact>
          <Fact name="Published a second">{rate(sum((c) => c.in_rate))}</Fact>
          <Fact name="Delivered a second">{rate(sum((c) => c.out_rate))}</Fact>
          <Fact name="Subscriptions">{count(sum((c) => c.subscriptions))}</Fact>
        </dl>
      )}
      {value ? (
        list.length ? (
          <Table
            name="Connections"
            rows={list}
            id={(c) => c.connection}
            sorted="-Behind"
            columns={columns((c) => {
              asked.value = c;
            })}
          />
        ) : (
          <Empty title="No connection" shell={`tidewire tail orders -f --server ${location.origin}`}>
            <p>
              These are WebSockets and streams of events; calls that are over at once are not counted. One is made by:
            </p>
          </Empty>
        )
      ) : (
        !error && <Waiting what="the connections" />
      )}
      {asked.value && (
        <Confirm
          title={`Disconnect ${asked.value.connection}?`}
          action="Disconnect"
          run={async () => {
            await api(at("connections", asked.value!.connection), { method: "DELETE" });
            again();
          }}
          close={() => {
            asked.value = undefined;
          }}
        >
          <p>
            It has {several(asked.value.subscriptions, "subscription")}, from {asked.value.address} at{" "}
            {asked.value.node}. Its client may come back, and resumes where it was.
          </p>
        </Confirm>
      )}
    </section>
  );
}

const columns = (ask: (c: Connection) => void): Column<Connection>[] => [
  { head: "Connection", cell: (c) => <code>{c.connection}</code>, sort: (c) => c.connection },
  { head: "Principal", cell: (c) => c.principal || unknown, sort: (c) => c.principal ?? "" },
  { head: "Node", cell: (c) => c.node, sort: (c) => c.node },
  { head: "Transport", cell: (c) => c.transport, sort: (c) => c.transport },
  { head: "Address", cell: (c) => c.address, sort: (c) => c.address },
  { head: "Open for", cell: (c) => ago(c.since, now.value), sort: (c) => c.since },
  { head: "Subscriptions", cell: (c) => count(c.subscriptions), sort: (c) => c.subscriptions, number: true },
  { head: "In a second", cell: (c) => rate(c.in_rate), sort: (c) => c.in_rate, number: true },
  { head: "Out a second", cell: (c) => rate(c.out_rate), sort: (c) => c.out_rate, number: true },
  { head: "Behind", cell: (c) => count(c.behind), sort: (c) => c.behind, number: true },
  {
    head: "Action",
    cell: (c) => (
      <button type="button" class="small" aria-label={`Disconnect ${c.connection}`} onClick={() => ask(c)}>
        Disconnect
      </button>
    ),
  },
];
