import { type ClientFrame, lineOf, parseFrames } from "../protocol/frames.js";
import type { Link, Transport } from "./transport.js";

/** What a node takes in one frame, until its welcome says so. */
const defaultFrameBytes = 64 << 10;

const encoder = new TextEncoder();

export const websocket: Transport = {
  name: "websocket",
  open({ url, WebSocket }, events): Link {
    const socket = new WebSocket(`${url.replace(/^http/, "ws")}/ws`, "tidewire.v1.json");
    let mostBytes = defaultFrameBytes;
    let waiting: ClientFrame[] | undefined = []; // until the socket is open
    let over = false;

    const write = (frames: ClientFrame[]) => {
      let text = "";
      let bytes = 0;
      const flush = () => {
        if (text) socket.send(text.slice(1));
        text = "";
        bytes = 0;
      };
      for (const frame of frames) {
        const line = `\n${lineOf(frame)}`;
        const lineBytes = encoder.encode(line).length;
        if (lineBytes > mostBytes) {
          const detail = `${lineBytes} bytes are more than ${mostBytes}`;
          events.frame({ op: "error", id: (frame as { id?: number }).id, code: "message-too-large", detail });
          continue;
        }
        if (bytes + lineBytes > mostBytes) flush();
        bytes += lineBytes;
        text += line;
      }
      flush();
    };

    socket.onopen = () => {
      const frames = waiting!;
      waiting = undefined;
      if (!over) write(frames);
    };
    socket.onmessage = ({ data }) => {
      for (const frame of parseFrames(data as string)) {
        if (over) return;
        mostBytes = frame.limits?.max_frame_bytes ?? mostBytes;
        events.frame(frame);
      }
    };
    socket.onclose = ({ code, reason }) => {
      if (!over) events.end({ code, reason });
      over = true;
    };
    socket.onerror = () => {}; // its close follows

    return {
      send: (frames) => (waiting ? waiting.push(...frames) : write(frames)),
      close() {
        over = true;
        socket.close(1000);
      },
    };
  },
};
