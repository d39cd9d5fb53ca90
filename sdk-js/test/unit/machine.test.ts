import assert from "node:assert/strict";
import { test } from "node:test";
import { fullJitter } from "../../src/core/backoff.js";
import {
  type Effect,
  idle,
  type Machine,
  type MachineEvent,
  type Policy,
  transition,
} from "../../src/core/connection.js";

const policy: Policy = {
  minDelayMs: 250,
  maxDelayMs: 20_000,
  maxAttempts: Infinity,
  suspendAfterMs: 120_000,
  transports: 1,
};

const lost = (more: Partial<MachineEvent & { type: "lost" }> = {}): MachineEvent => ({
  type: "lost",
  at: 0,
  random: 1,
  verdict: "retry",
  ...more,
});

function play(events: MachineEvent[], rules = policy): { machine: Machine; effects: Array<Effect | undefined> } {
  let machine = idle;
  const effects = events.map((e) => {
    const [next, effect] = transition(machine, e, rules);
    machine = next;
    return effect;
  });
  return { machine, effects };
}

test("the delay doubles up to its bound, and a random part of it is waited", () => {
  const { effects } = play([{ type: "connect" }, ...Array.from({ length: 9 }, () => lost())]);
  const waits = effects.slice(1).map((e) => e && "ms" in e && e.ms);
  assert.deepEqual(waits, [250, 500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000]);
  assert.equal(fullJitter(3, 250, 20_000, 0.5), 1000);
  assert.equal(fullJitter(1e6, 250, 20_000, 1), 20_000);
});

test("the backoff begins anew only after five healthy seconds", () => {
  const up: MachineEvent = { type: "opened", at: 1000, rank: 0 };
  const before: MachineEvent[] = [{ type: "connect" }, lost(), lost(), up];
  assert.equal(play([...before, lost({ at: 5999 })]).machine.attempt, 3);
  assert.equal(play([...before, lost({ at: 6000 })]).machine.attempt, 1);
});

test("what the server says is waited for as given, and nothing cuts it short", () => {
  const { machine, effects } = play([{ type: "connect" }, lost({ retryAfterMs: 7000 }), { type: "wake" }]);
  assert.deepEqual(effects.slice(1), [{ do: "wait", ms: 7000 }, undefined]);
  assert.deepEqual(transition(machine, { type: "due" }, policy)[1], { do: "open" });
  assert.deepEqual(play([{ type: "connect" }, lost(), { type: "wake" }]).effects[2], { do: "open" });
});

test("nothing is opened twice at once", () => {
  const { effects } = play([
    { type: "connect" },
    { type: "connect" },
    { type: "wake" },
    lost(),
    { type: "due" },
    { type: "due" },
  ]);
  assert.deepEqual(
    effects.map((e) => e?.do),
    ["open", undefined, undefined, "wait", "open", undefined],
  );
});

test("fatal closes and too many attempts fail; connect begins anew", () => {
  const fatal = play([{ type: "connect" }, lost({ verdict: "fatal" })]);
  assert.equal(fatal.machine.state, "failed");
  assert.deepEqual(transition(fatal.machine, { type: "connect" }, policy)[1], { do: "open" });
  const few = play([{ type: "connect" }, lost(), lost(), lost()], { ...policy, maxAttempts: 2 });
  assert.equal(few.machine.state, "failed");
});

test("reconnecting becomes suspended when it takes long, and closed is for ever", () => {
  const { machine } = play([
    { type: "connect" },
    { type: "opened", at: 0, rank: 0 },
    lost({ at: 10 }),
    lost({ at: 120_009 }),
  ]);
  assert.equal(machine.state, "reconnecting");
  const later = transition(machine, lost({ at: 120_010 }), policy)[0];
  assert.equal(later.state, "suspended");
  const closed = transition(later, { type: "close" }, policy)[0];
  for (const e of [{ type: "connect" }, { type: "due" }, lost()] as MachineEvent[]) {
    assert.equal(transition(closed, e, policy)[0].state, "closed");
  }
});

test("a transport that does not open gives way to the next, and after the last comes the first", () => {
  let machine = transition(idle, { type: "connect" }, policy)[0];
  const ranks = Array.from({ length: 6 }, () => {
    machine = transition(machine, lost(), { ...policy, transports: 3 })[0];
    return machine.rank;
  });
  assert.deepEqual(ranks, [0, 1, 2, 0, 0, 1]);
});

test("a transport that had opened is kept", () => {
  const rules = { ...policy, transports: 3 };
  const events: MachineEvent[] = [{ type: "connect" }, lost(), { type: "opened", at: 0, rank: 0 }, lost(), lost()];
  assert.equal(play(events, rules).machine.rank, 0);
});
