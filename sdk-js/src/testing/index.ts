export { type FakeClock, fakeClock } from "./clock.js";
export type { FakeRecord, FakeTopic, Outcome } from "./log.js";
export { type FakeConnection, type FakeServer, fakeServer, type Incoming, type Script } from "./server.js";
