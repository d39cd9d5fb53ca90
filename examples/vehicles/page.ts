// A map of what moves, with nothing but what every browser brings along: an
// EventSource resumes by itself, with the last id that it saw.
import { block, height, type Position, width } from "./town";

const $ = (id: string) => document.getElementById(id)!;
const draw = (name: string, attributes: object, text = "") => {
  const shape = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, String(value));
  shape.textContent = text;
  return shape;
};

const trams = new Map<string, { shape: SVGElement; last: Position }>();
const counts = { count: 0, missing: 0, again: 0 };

function move(name: string, now: Position): void {
  const tram = trams.get(name);
  if (!tram) {
    const shape = draw("g", { "data-name": name });
    shape.append(draw("circle", { r: 1.6 }), draw("text", { dy: 0.6 }, name));
    $("map").append(shape);
    trams.set(name, { shape, last: now });
    counts.count++;
    return place(shape, now);
  }
  const steps = now.since === tram.last.since ? now.n - tram.last.n : 1;
  // Of several partitions a stream names its place now and then, so a few positions come again after a cut.
  if (steps < 1) return void counts.again++;
  counts.count++;
  counts.missing += steps - 1;
  tram.last = now;
  place(tram.shape, now);
}

const place = (shape: SVGElement, { x, y }: Position) => {
  shape.style.transform = `translate(${x}px, ${y}px)`;
};

function tell(state: string): void {
  $("state").textContent = state;
  $("state").dataset.state = state;
  for (const [id, n] of Object.entries(counts)) $(id).textContent = String(n);
}

for (let x = 0; x <= width; x += block) $("map").append(draw("path", { d: `M${x} 0V${height}` }));
for (let y = 0; y <= height; y += block) $("map").append(draw("path", { d: `M0 ${y}H${width}` }));

const from = new Date(Date.now() - 2000).toISOString(); // where they were a moment ago
const events = new EventSource(`${NODE}/topics/vehicles/events?from=${from}`);
events.onopen = () => tell("connected");
events.onerror = () => tell("reconnecting");
events.onmessage = ({ data }) => {
  const { key, value } = JSON.parse(data) as { key: string; value: Position };
  move(key, value);
  tell("connected");
};
