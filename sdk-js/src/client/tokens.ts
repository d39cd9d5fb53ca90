import { asError } from "../error.js";
import type { ClientOptions, TokenReason } from "../types.js";
import type { Clock } from "./clock.js";

export interface Tokens {
  /** When the token ends, in milliseconds since 1970, where that is known. */
  expiresAt?: number;
  /** The token; a new one where there is none, or the last one is spoiled or over. */
  get(): Promise<string | undefined>;
  /** The token is of no use any more. Returns whether there may be another one. */
  spoil(reason: TokenReason): boolean;
}

/** The caller's tokens. The callback is never asked twice at once. */
export function tokens(auth: ClientOptions["auth"], clock: Clock, signal: AbortSignal): Tokens {
  let token: string | undefined;
  let reason: TokenReason | undefined = "initial"; // to ask for another one
  let asking: Promise<void> | undefined;

  const ask = async () => {
    try {
      const given = typeof auth === "function" ? await auth({ reason: reason!, signal }) : auth;
      ({ token, expiresAt: self.expiresAt } = typeof given === "object" ? given : { token: given });
      reason = undefined;
    } catch (thrown) {
      throw asError(thrown, "unauthorized");
    } finally {
      asking = undefined;
    }
  };
  const self: Tokens = {
    async get() {
      if (self.expiresAt! <= clock.now()) self.spoil("expiring");
      if (reason) asking ??= ask();
      await asking;
      return token;
    },
    spoil(why) {
      reason ??= why;
      return typeof auth === "function";
    },
  };
  return self;
}
