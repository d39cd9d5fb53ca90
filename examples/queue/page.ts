// A work queue: each tile of a wall is a record, and painters are members of a group
// that share them. A tile that fails three times ends in the dead-letter topic.
import { createClient, type Message, type Subscription, type WorkItem, worker } from "tidewire";

interface Tile {
  wall: string;
  tile: number;
}
interface Painted extends Tile {
  by: string;
}
type Topics = { tiles: Tile; painted: Painted; "tiles.painters.dlq": Tile };

const tiles = 96;
const damp = 13; // no paint holds there

const connect = () => createClient<Topics, "worker">({ url: NODE, use: [worker()] });
const tide = connect();

const $ = (id: string) => document.getElementById(id)!;
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Publishes a record for each tile. */
async function order(): Promise<void> {
  const wall = Date.now().toString(36);
  location.hash = wall;
  await tide.publishBatch(
    "tiles",
    Array.from({ length: tiles }, (_, tile) => ({ value: { wall, tile }, key: `${wall}/${tile}` })),
  );
}

/** A painter has a connection of its own, as if it worked elsewhere. */
function hire(by: string): void {
  const own = connect();
  async function paint({ value, signal }: WorkItem<Tile>): Promise<void> {
    if (value.tile === damp) throw new Error("it is too damp");
    await sleep(100 + Math.random() * 200);
    if (signal.aborted) return; // the tile is in other hands by now
    await own.publish("painted", { ...value, by }, { key: `${value.wall}/${value.tile}` });
  }
  own.worker("painters", "tiles", paint, {
    mode: "shared",
    maxDeliveries: 3,
    leaseMs: 5000,
    onError: () => ({ retryInMs: 200 }),
  });
  const card = document.createElement("li");
  const dismiss = document.createElement("button");
  dismiss.textContent = "Dismiss";
  dismiss.onclick = () => {
    card.remove();
    void own.close({ drainMs: 0 }); // what is in its hands goes to others
  };
  card.style.setProperty("--by", by);
  card.append(dismiss);
  $("painters").append(card);
}

let shown: Subscription[] = [];

/** Shows a wall as the log tells of it, whoever paints it. */
function show(wall: string): void {
  for (const sub of shown) void sub.unsubscribe();
  $("wall").replaceChildren(...Array.from({ length: tiles }, () => document.createElement("div")));
  const mark = (fn: (tile: HTMLElement, message: Message<Painted>) => void) => (message: Message) => {
    const { value } = message as Message<Painted>;
    fn($("wall").children[value.tile] as HTMLElement, message as Message<Painted>);
    $("done").textContent = String($("wall").querySelectorAll(".painted").length);
    $("dead").textContent = String($("wall").querySelectorAll(".damp").length);
  };
  const all = { from: "earliest", keyPrefix: `${wall}/` } as const;
  const painted = mark((tile, { value }) => {
    tile.className = "painted";
    tile.style.setProperty("--by", value.by);
    tile.dataset.times = String(Number(tile.dataset.times ?? 0) + 1);
  });
  const dead = mark((tile, { headers }) => {
    tile.className = "damp";
    tile.textContent = "✕";
    tile.title = headers["Tidewire-Dead-Reason"] ?? "";
  });
  shown = [tide.subscribe("painted", painted, all), tide.subscribe("tiles.painters.dlq", dead, all)];
}

let hired = 0;
tide.on("state", ({ state }) => {
  $("state").textContent = state;
  $("state").dataset.state = state;
});
$("order").onclick = () => void order();
$("hire").onclick = () => hire(`hsl(${(hired++ * 67) % 360} 60% 55%)`);
window.onhashchange = () => show(location.hash.slice(1));
show(location.hash.slice(1));
