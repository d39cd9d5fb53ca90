import assert from "node:assert/strict";
import { test } from "node:test";
import {
  interrupted,
  isFlying,
  type Lane,
  newLane,
  type Outgoing,
  refused,
  rewind,
  take,
  unmapped,
} from "../../src/core/lane.js";
import { TidewireError } from "../../src/error.js";

interface Named extends Outgoing {
  name: string;
}

let order = 0;
const record = (name: string, more: Partial<Outgoing> = {}): Named => ({
  name,
  order: ++order,
  hash: 0,
  body: name,
  flying: false,
  doubt: false,
  ...more,
});

function laneOf(...names: string[]): Lane<Named> {
  const lane = newLane<Named>(0, "p1");
  lane.records = names.map((name) => record(name));
  return lane;
}

const sent = (lane: Lane<Named>, room = 99) =>
  take(lane, room, 1e6)
    .map((r) => `${r.name}${r.sequence ?? ""}`)
    .join(" ");
const refuse = (lane: Lane<Named>, name: string, code: string) =>
  refused(lane, lane.records.find((r) => r.name === name)!, new TidewireError(code, ""));
/** The lane that takes its place, with all that is left. */
const anew = (lane: Lane<Named>, producer = "p2") => {
  assert.equal(lane.stale, true);
  const next = newLane<Named>(0, producer);
  next.records = unmapped([lane])!;
  return next;
};
const kept = (lane: Lane<Named>, name: string) => {
  lane.records = lane.records.filter((r) => r.name !== name);
};

test("numbers are given in order when records are first sent", () => {
  const lane = laneOf("a", "b", "c");
  assert.equal(sent(lane, 2), "a0 b1");
  assert.equal(sent(lane), "c2");
  assert.equal(sent(lane), "");
});

test("a lost link sends what was under way again, with the same numbers", () => {
  const lane = laneOf("a", "b", "c");
  sent(lane, 2);
  kept(lane, "a");
  assert.deepEqual(interrupted(lane), []);
  assert.equal(sent(lane), "b1 c2");
});

test("after a refusal of the moment nothing overtakes", () => {
  const lane = laneOf("a", "b", "c");
  sent(lane, 2);
  assert.equal(refuse(lane, "a", "throttled"), "again");
  assert.equal(sent(lane), "", "b is still under way");
  assert.equal(refuse(lane, "b", "out-of-order-sequence"), "again");
  assert.equal(isFlying(lane), false);
  rewind(lane);
  // b's answer said that the numbers do not fit; nothing is in doubt, so a new producer begins.
  assert.equal(sent(anew(lane)), "a0 b1 c2");
});

test("what may be kept goes again under its number, whatever else is refused", () => {
  const lane = laneOf("a", "b");
  sent(lane);
  refuse(lane, "a", "unknown-outcome");
  refuse(lane, "b", "out-of-order-sequence");
  assert.deepEqual(rewind(lane), []);
  assert.equal(unmapped([lane]), undefined);
  assert.equal(sent(lane), "a0");
  kept(lane, "a");
  assert.equal(sent(anew(lane)), "b0");
});

test("a refusal for good takes the record out, and numbers that do not fit are mended", () => {
  const lane = laneOf("a", "b");
  sent(lane, 1);
  assert.equal(refuse(lane, "a", "forbidden"), "out");
  kept(lane, "a");
  assert.equal(sent(lane), "b1");
  assert.equal(refuse(lane, "b", "out-of-order-sequence"), "again");
  rewind(lane);
  assert.equal(sent(anew(lane)), "b0");
});

test("a producer of whom nothing was kept yet is not forgotten", () => {
  const lane = laneOf("a", "b");
  sent(lane);
  interrupted(lane); // both are in doubt, and neither came
  sent(lane);
  refuse(lane, "a", "throttled");
  refuse(lane, "b", "unknown-producer");
  assert.deepEqual(rewind(lane), []);
  assert.equal(sent(lane), "a0");
  kept(lane, "a");
  assert.equal(sent(anew(lane)), "b0");
});

test("where the producer is forgotten, what may be kept stays unknown and the rest goes on", () => {
  const lane = laneOf("z", "a", "b");
  sent(lane, 1);
  kept(lane, "z");
  sent(lane, 1);
  interrupted(lane); // a is in doubt
  sent(lane);
  refuse(lane, "a", "unknown-producer");
  refuse(lane, "b", "unknown-producer");
  assert.deepEqual(
    rewind(lane).map((r) => r.name),
    ["a"],
  );
  assert.equal(sent(anew(lane)), "b0");
});

test("a record without a number overtakes nothing, and goes once", () => {
  const lane = laneOf("a");
  lane.records.push(record("n", { acks: "none" }), record("b"));
  assert.equal(sent(lane), "a0");
  kept(lane, "a");
  assert.equal(sent(lane), "n b1");
  assert.deepEqual(
    interrupted(lane).map((r) => r.name),
    ["n"],
  );
  assert.equal(sent(lane), "b1");
});

test("of a partition that is another's by now only what is in doubt is asked for", () => {
  const lane = laneOf("a", "b", "c");
  sent(lane, 2);
  refuse(lane, "a", "unknown-outcome");
  refuse(lane, "b", "partition-sealed");
  rewind(lane);
  assert.equal(sent(lane), "a0");
  refuse(lane, "a", "partition-sealed");
  rewind(lane);
  assert.equal(sent(lane), "");
  assert.equal(
    lane.records.some((r) => r.doubt),
    false,
  );
  assert.equal(sent(anew(lane)), "a0 b1 c2");
});

test("what one answer said of when to try again holds, whatever the others say", () => {
  const lane = laneOf("a", "b");
  sent(lane);
  refused(lane, lane.records[0]!, new TidewireError("throttled", "", { retryAfterMs: 700 }));
  refuse(lane, "b", "out-of-order-sequence");
  assert.equal(lane.retryAfterMs, 700);
  rewind(lane);
  assert.equal(lane.retryAfterMs, undefined);
});

// A partition as the server keeps it, which loses answers and refuses for the moment.
test("whatever is lost, the log has each record once and in order", () => {
  for (let seed = 1; seed <= 300; seed++) {
    let state = seed * 7919;
    const random = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 32;
    };
    const names = Array.from({ length: 12 }, (_, i) => String.fromCharCode(97 + i));
    let lane = laneOf(...names);
    const log: string[] = [];
    const windows = new Map<string, string[]>();
    let producers = 1;
    for (let step = 0; lane.records.length; step++) {
      assert.ok(step < 10_000, `seed ${seed} comes to no end`);
      const room = 1 + Math.floor(random() * 5);
      let cut = false;
      for (const r of take(lane, room, 1e6)) {
        const luck = random();
        if (cut) continue; // it never arrives
        cut = luck > 0.95;
        if (luck < 0.1) {
          refused(lane, r, new TidewireError("throttled", ""));
          continue;
        }
        const window = windows.get(lane.producer) ?? [];
        windows.set(lane.producer, window);
        if (r.sequence! > window.length) {
          const code = window.length ? "out-of-order-sequence" : "unknown-producer";
          refused(lane, r, new TidewireError(code, ""));
          continue;
        }
        if (r.sequence === window.length) {
          window.push(r.name);
          log.push(r.name);
        } else assert.equal(window[r.sequence!], r.name, `seed ${seed}: a repeat is of the same record`);
        if (luck < 0.2) refused(lane, r, new TidewireError("unknown-outcome", ""));
        else if (luck < 0.8) {
          r.flying = false;
          kept(lane, r.name);
        } // else its answer is still to come
      }
      if (cut || random() < 0.3) interrupted(lane);
      else if (lane.rewinding) {
        for (const r of lane.records.filter((x) => x.flying)) {
          r.flying = false;
          kept(lane, r.name);
        }
        assert.deepEqual(rewind(lane), [], `seed ${seed}: nothing is given up`);
      }
      if (lane.stale && unmapped([lane])) lane = anew(lane, `p${++producers}`);
    }
    assert.deepEqual(log, names, `seed ${seed}`);
  }
});
