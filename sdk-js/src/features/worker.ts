import type { Core, Feature } from "../client/feature.js";
import { joined } from "./member.js";

/** Members of consumer groups, over WebSocket: `client.worker`. */
export function worker(): Feature<"worker"> {
  return {
    name: "worker",
    install: (core: Core) => ({
      worker(group, topic, handler, opts = {}) {
        core.admit();
        return joined(core, group, topic, (item) => handler(item), opts);
      },
    }),
  };
}
