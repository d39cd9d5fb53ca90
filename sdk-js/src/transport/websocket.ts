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
      for (const frame of frames) {
        const line = lineOf(frame);
        const lineBytes = encoder.encode(line).length + 1;
        if (lineBytes > mostBytes) {
          const detail = `the frame has ${lineBytes} bytes, the node takes ${mostBytes}`;
          events.frame({ op: "error", id: "id" in frame ? frame.id : undefined, code: "message-too-large", detail });
          continue;
        }
        if (bytes + lineBytes > mostBytes) {
          socket.send(text);
          text = "";
          bytes = 0;
        }
        text += text ? `\n${line}` : line;
        bytes += lineBytes;
      }
      if (text) socket.send(text);
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
      if (over) return;
      over = true;
      events.end({ code, reason });
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
