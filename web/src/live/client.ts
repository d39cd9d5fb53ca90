import { effect } from "@preact/signals";
import { createClient, history, poll, sse } from "tidewire";
import { token } from "./api.js";

type Tide = ReturnType<typeof make>;

const make = (auth: string) =>
  createClient<Record<string, unknown>, "history" | "transport">({
    url: location.origin,
    auth: auth || undefined,
    use: [sse(), poll(), history()],
  });

let tide: Tide | undefined;
let made = "";

/** The page's connection, as the SDK makes it: on first use, and anew with another token. */
export function client(): Tide {
  if (!tide || made !== token.peek()) {
    void tide?.close();
    made = token.peek();
    tide = make(made);
  }
  return tide;
}

effect(() => {
  if (tide && token.value !== made) {
    void tide.close();
    tide = undefined;
  }
});
