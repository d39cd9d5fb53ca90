// A chat: each room is a key of one topic, so its lines are in one order for everybody.
import { createClient, type Message, type Subscription } from "tidewire";

interface Line {
  from: string;
  text: string;
}

const tide = createClient<{ rooms: Line }>({ url: NODE });
const day = 24 * 3600_000;

const $ = <E extends HTMLElement>(id: string) => document.getElementById(id) as E;
const lines = $("lines");
const roomName = () => decodeURIComponent(location.hash.slice(1)) || "lobby";

let room: Subscription<Line> | undefined;

/** Shows what was said in a room within a day, and what will be. */
function enter(): void {
  room?.unsubscribe();
  lines.replaceChildren();
  $("room").textContent = roomName();
  room = tide.subscribe("rooms", show, { key: roomName(), from: new Date(Date.now() - day) });
}

/** Says it at once, pale until it is kept: through lost connections and restarts of the node. */
async function say(line: Line): Promise<void> {
  const item = lines.appendChild(itemOf(line));
  item.className = "sending";
  try {
    const place = idOf(await tide.publish("rooms", line, { key: roomName() }));
    if (document.getElementById(place))
      item.remove(); // it came back before its answer
    else item.id = place;
  } catch (error) {
    item.className = "refused";
    item.title = String(error);
  }
}

/** The log decides where a line stands, also one of our own. */
function show(message: Message<Line>): void {
  const id = idOf(message);
  const item = document.getElementById(id) ?? itemOf(message.value);
  item.id = id;
  item.className = "kept";
  lines.append(item);
  item.scrollIntoView({ block: "nearest" });
}

const idOf = ({ partition, offset }: { partition: number; offset?: number }) => `${partition}-${offset}`;

function itemOf({ from, text }: Line): HTMLElement {
  const item = document.createElement("li");
  const who = document.createElement("b");
  who.textContent = from;
  item.append(who, text);
  return item;
}

tide.on("state", ({ state }) => {
  $("state").textContent = state;
  $("state").dataset.state = state;
});
const who = $<HTMLInputElement>("who");
const what = $<HTMLInputElement>("what");
const where = $<HTMLInputElement>("where");
who.value = localStorage.getItem("who") ?? "";
$("say").onsubmit = (event) => {
  event.preventDefault();
  localStorage.setItem("who", who.value);
  void say({ from: who.value, text: what.value });
  what.value = "";
};
$("enter").onsubmit = (event) => {
  event.preventDefault();
  location.hash = encodeURIComponent(where.value);
  where.value = "";
};
window.onhashchange = enter;
enter();
