import { asError } from "../error.js";
import type { ClientOptions, TokenReason } from "../types.js";
import type { Clock } from "./clock.js";

export interface Tokens {
  /** Whether a refused token can be replaced. */
  readonly renewable: boolean;
  /** When the token ends, in milliseconds since 1970, where that is known. */
  expiresAt?: number;
  /** The token; a new one where there is none, or the last one is spoiled or over. */
  get(): Promise<string | undefined>;
  /** The token is of no use any more. */
  spoil(reason: TokenReason): void;
}

/** The caller's tokens. The callback is never asked twice at once. */
export function tokens(auth: ClientOptions["auth"], clock: Clock, signal: AbortSignal): Tokens {
  let token: string | undefined;
  let reason: TokenReason | undefined = "initial"; // to ask for another one
  let asking: Promise<string> | undefined;

  const take = (given: Exclude<typeof auth, undefined | ((...args: never[]) => unknown)>) => {
    token = typeof given === "string" ? given : given.token;
    self.expiresAt = typeof given === "string" ? undefined : given.expiresAt;
    reason = undefined;
    return token;
  };
  const ask = async (why: TokenReason) => {
    try {
      return take(typeof auth === "function" ? await auth({ reason: why, signal }) : auth!);
    } catch (thrown) {
      throw asError(thrown, "unauthorized");
    } finally {
      asking = undefined;
    }
  };
  const self: Tokens = {
    renewable: typeof auth === "function",
    async get() {
      if (!auth) return undefined;
      if (!reason && self.expiresAt !== undefined && self.expiresAt <= clock.now()) reason = "expiring";
      if (!reason) return token;
      asking ??= ask(reason);
      return asking;
    },
    spoil: (why) => {
      reason ??= why;
    },
  };
  return self;
}
