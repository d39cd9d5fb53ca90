import type { End } from "../transport/transport.js";
import type { ClientFrame, ServerFrame } from "./frames.js";

// What the tabs of a browser tell each other. They may have been loaded at different times.

/** What a tab says to the one that leads, of one of its links. */
export interface Upward {
  tab: string;
  link?: string; // none: it asks whether the connection lives
  /** Where the link goes. */
  url?: string;
  frames?: ClientFrame[];
  close?: boolean;
}

/** What the leading tab says to another one. With nothing in it: it does what was asked. */
export interface Downward {
  leader: string;
  link?: string;
  frame?: ServerFrame;
  end?: End;
  /** The link cannot be shared, for whoever calls is somebody else. */
  alone?: boolean;
}
