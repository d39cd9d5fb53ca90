import { test } from "node:test";
import { createClient } from "../../src/client/client.js";
import { history } from "../../src/features/history.js";
import { worker } from "../../src/features/worker.js";
import type { TopicOf, ValueOf } from "../../src/types.js";

// What the compiler holds to; there is nothing to run.
type Equal<A, B> = (<X>() => X extends A ? 1 : 2) extends <X>() => X extends B ? 1 : 2 ? true : false;
const holds = <_ extends true>() => {};

type Topics = { orders: { total: number }; "chat.*": string; "a.*.b": 1 };

test("topics give their values types, patterns included", () => {
  holds<Equal<TopicOf<Topics>, "orders" | `chat.${string}` | `a.${string}.b`>>();
  holds<Equal<ValueOf<Topics, "orders">, { total: number }>>();
  holds<Equal<ValueOf<Topics, "chat.room">, string>>();
  holds<Equal<ValueOf<Topics, "a.x.b">, 1>>();
  holds<Equal<TopicOf<Record<string, unknown>>, string>>();
});

test("what a client can do is what it uses", () => {
  const make = () => ({
    plain: createClient({ url: "" }),
    both: createClient({ url: "", use: [history(), worker()] }),
    named: createClient<Topics, "history">({ url: "", use: [history()] }),
  });
  type Made = ReturnType<typeof make>;
  type Has<C, M extends string> = M extends keyof C ? true : false;
  holds<Equal<[Has<Made["plain"], "history">, Has<Made["plain"], "worker">], [false, false]>>();
  holds<Equal<[Has<Made["both"], "history">, Has<Made["both"], "worker">], [true, true]>>();
  holds<Equal<[Has<Made["named"], "history">, Has<Made["named"], "worker">], [true, false]>>();
});
