// Trams that go round blocks of the town and tell where they are, twice a second.
// Each is a key: its positions come in order. While the node is away they wait, and
// none is lost.
import { createClient } from "tidewire";
import { WebSocket } from "ws";
import { block, height, type Position, width } from "./town";

const tide = createClient<{ vehicles: Position }>({ url: NODE, WebSocket: WebSocket as never });

interface Tram {
  name: string;
  /** Its round: the corner it begins at, and its sides. */
  left: number;
  top: number;
  wide: number;
  high: number;
  at: number;
  speed: number;
}

const pick = (n: number) => Math.floor(Math.random() * n);

function tram(_: unknown, number: number): Tram {
  const left = pick(width / block) * block;
  const top = pick(height / block) * block;
  const wide = (1 + pick((width - left) / block)) * block;
  const high = (1 + pick((height - top) / block)) * block;
  return { name: String(number + 1), left, top, wide, high, at: Math.random() * 100, speed: 1 + Math.random() };
}

/** Where a tram is on its round. */
function place({ left, top, wide, high, at }: Tram): { x: number; y: number } {
  const way = at % (2 * (wide + high));
  if (way < wide) return { x: left + way, y: top };
  if (way < wide + high) return { x: left + wide, y: top + way - wide };
  if (way < 2 * wide + high) return { x: left + wide - (way - wide - high), y: top + high };
  return { x: left, y: top + high - (way - 2 * wide - high) };
}

const fleet = Array.from({ length: 24 }, tram);
const since = Date.now();

async function drive(): Promise<void> {
  for (let n = 0; ; n++) {
    for (const t of fleet) t.at += t.speed;
    const positions = fleet.map((t) => ({ key: t.name, value: { ...place(t), n, since } }));
    await tide.publishBatch("vehicles", positions);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}
void drive();
