import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { href } from "../core/route.js";
import { alerts, nodes, problems } from "../live/pulse.js";
import { route } from "../live/route.js";
import { Cluster } from "../screens/cluster.js";
import { Connections } from "../screens/connections.js";
import { DeadLetters } from "../screens/deadletters.js";
import { GroupDetail } from "../screens/group.js";
import { Groups } from "../screens/groups.js";
import { Overview } from "../screens/overview.js";
import { Playground } from "../screens/playground.js";
import { TopicDetail } from "../screens/topic.js";
import { Topics } from "../screens/topics.js";
import { Access } from "./access.js";
import { toggleZone, zone } from "./time.js";

interface Screen {
  name: string;
  title: string;
  List: ComponentType;
  /** Of one thing, by the names behind the screen's own in the address. */
  One?: ComponentType<{ names: string[] }>;
}

const screens: Screen[] = [
  { name: "overview", title: "Overview", List: Overview },
  { name: "topics", title: "Topics", List: Topics, One: TopicDetail },
  { name: "groups", title: "Groups", List: Groups, One: GroupDetail },
  { name: "dead-letters", title: "Dead letters", List: DeadLetters },
  { name: "connections", title: "Connections", List: Connections },
  { name: "cluster", title: "Cluster", List: Cluster },
  { name: "playground", title: "Playground", List: Playground },
];

/** Whether all is well, on every screen; it leads to what is not. */
function State() {
  const { error, value } = nodes.value;
  const list = problems.value;
  if (error && !value) return <span class="state wait">{error.message}</span>;
  if (error) return <span class="state bad">{error.message}</span>;
  if (!value) return <span class="state wait">Connecting</span>;
  const grave = list.filter((t) => t.grave).length;
  if (alerts.value.error) return <span class="state wait">{alerts.value.error.message}</span>;
  if (list.length === 0) return <span class="state good">All is well</span>;
  return (
    <a class={grave ? "state bad" : "state wait"} href={href(["overview"])}>
      {list.length === 1 ? "1 problem" : `${list.length} problems`}
    </a>
  );
}

export function App() {
  const { path } = route.value;
  const [name = "overview", ...names] = path;
  const screen = screens.find((s) => s.name === name);
  const main = useRef<HTMLElement>(null);
  const title = screen ? [...names.slice(0, 2).reverse(), screen.title].join(" – ") : "Nothing here";
  const first = useRef(true);
  useEffect(() => {
    document.title = `${title} – Tidewire`;
    if (!first.current) main.current?.focus({ preventScroll: true }); // a screen reader begins with the new screen
    first.current = false;
  }, [title]);
  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to the content
      </button>
      <header>
        <h1>
          <a href={href(["overview"])}>
            <img src="/assets/icon.svg" alt="" width="24" height="24" />
            Tidewire
          </a>
        </h1>
        <div id="state" role="status">
          <State />
        </div>
        <button type="button" class="small" onClick={toggleZone} title="Times in local time or in UTC">
          {zone.value === "utc" ? "UTC" : "Local"}
        </button>
        <Access />
      </header>
      <div class="page">
        <nav aria-label="Screens">
          {screens.map((s) => (
            <a key={s.name} href={href([s.name])} aria-current={s === screen ? "page" : undefined}>
              {s.title}
            </a>
          ))}
        </nav>
        <main id="main" tabIndex={-1} ref={main}>
          {screen ? (
            screen.One && names.length > 0 ? (
              <screen.One key={`${name}/${names.slice(0, name === "groups" ? 2 : 1).join("/")}`} names={names} />
            ) : (
              <screen.List />
            )
          ) : (
            <p class="quiet">
              There is no screen “{name}”. <a href={href(["overview"])}>Overview</a>
            </p>
          )}
        </main>
      </div>
    </>
  );
}
