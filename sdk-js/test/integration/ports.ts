import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";

const [lowest, highest] = [10_000, 65_535];

/** A port of 127.0.0.1 that is the caller's until `release`, whether something listens there or not. */
export interface KeptPort {
  address: string;
  release(): Promise<void>;
}

/**
 * As `internal/testkit/ports` does it: a port outside of those that the kernel gives to
 * outgoing connections, anybody's, held at 127.0.0.2 against all other tests.
 */
export async function keepPort(): Promise<KeptPort> {
  const candidates = pickable();
  for (let tries = 0; tries < 1000; tries++) {
    const port = candidates[Math.floor(Math.random() * candidates.length)]!;
    const guard = await listen(port, "127.0.0.2");
    if (!guard) continue;
    const probe = await listen(port, "127.0.0.1");
    if (probe) {
      await close(probe);
      return { address: `127.0.0.1:${port}`, release: () => close(guard) };
    }
    await close(guard);
  }
  throw new Error("no port was free");
}

/** What lies outside of the kernel's range; where that leaves next to nothing, everything. */
function pickable(): number[] {
  const text = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8");
  const [from, to] = text.trim().split(/\s+/).map(Number) as [number, number];
  const all = Array.from({ length: highest - lowest + 1 }, (_, i) => lowest + i);
  const outside = all.filter((port) => port < from || port > to);
  return outside.length < 1000 ? all : outside;
}

async function listen(port: number, host: string): Promise<Server | undefined> {
  const server = createServer().listen(port, host);
  try {
    await once(server, "listening");
    return server;
  } catch {
    return undefined; // somebody else's
  }
}

async function close(server: Server): Promise<void> {
  server.close();
  await once(server, "close");
}
