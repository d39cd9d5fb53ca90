/** What a fake server sees of a WebSocket. */
export interface Peer {
  /** The client's socket, as it was given to it. */
  socket: WebSocket;
  open(): void;
  message(text: string): void;
  closed(code: number, reason: string): void;
}

export interface Listener {
  connected(peer: Peer): void;
  received(peer: Peer, text: string): void;
  left(peer: Peer, code: number): void;
}

/** A WebSocket class whose far end is a listener of the test. */
export function fakeSocket(listener: Listener): typeof WebSocket {
  class FakeSocket {
    onopen: (() => void) | null = null;
    onmessage: ((e: { data: string }) => void) | null = null;
    onclose: ((e: { code: number; reason: string }) => void) | null = null;
    onerror: (() => void) | null = null;
    readyState = 0;
    readonly #peer: Peer;

    constructor(
      readonly url: string,
      readonly protocol: string,
    ) {
      this.#peer = {
        socket: this as unknown as WebSocket,
        open: () => {
          if (this.readyState !== 0) return;
          this.readyState = 1;
          this.onopen?.();
        },
        message: (data) => this.readyState === 1 && this.onmessage?.({ data }),
        closed: (code, reason) => {
          if (this.readyState === 3) return;
          this.readyState = 3;
          this.onclose?.({ code, reason });
        },
      };
      listener.connected(this.#peer);
    }

    send(text: string) {
      if (this.readyState !== 1) throw new Error("send on a socket that is not open");
      listener.received(this.#peer, text);
    }

    close(code = 1005) {
      if (this.readyState >= 2) return;
      this.readyState = 2;
      listener.left(this.#peer, code);
    }
  }
  return FakeSocket as unknown as typeof WebSocket;
}
