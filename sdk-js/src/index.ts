export { createClient } from "./client/client.js";
export type { Clock } from "./client/clock.js";
export type { Feature, FeatureMethods, FeatureName } from "./client/feature.js";
export { type Problem, TidewireError } from "./error.js";
export { history } from "./features/history.js";
export { poll } from "./features/poll.js";
export { sse } from "./features/sse.js";
export type * from "./types.js";
export { webStorage } from "./webstorage.js";
