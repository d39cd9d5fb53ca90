// What the API answers, as docs/protocol.md has it: the members that screens read.

export interface Partition {
  id: number;
  lo: number;
  hi: number;
  state: string;
  leader: string | null;
  leader_epoch: number;
  replicas: string[];
  isr: string[];
  /** First offset kept; null where no leader says. */
  earliest: number | null;
  /** End of what readers may see; null where no leader says. */
  hw: number | null;
}

export interface Topic {
  id: string;
  name: string;
  replicas: number;
  min_insync: number;
  retention: { age: string; bytes: number };
  max_message_bytes: number;
  durability: string;
  unclean: boolean;
  idempotency_window: string;
  created: string;
  layout: { generation: number; partitions: Partition[] };
}

export interface Move {
  topic: string;
  partition: number;
  direction: "in" | "out";
}

export interface Node {
  id: string;
  name: string;
  roles: string[];
  zone?: string;
  state: "alive" | "suspect" | "draining" | "dead";
  addresses: Record<string, string>;
  version: string;
  since: string;
  partitions: { led: number; followed: number };
  coordinator_leader: boolean;
  moves: Move[];
  /** These are missing of a node that does not answer. */
  uptime?: string;
  connections?: number;
  disk?: { used: number; free: number };
  rates?: { in_records: number; in_bytes: number; out_messages: number; out_bytes: number };
}

export interface Nodes {
  nodes: Node[];
  coordinator_leader?: string;
  feed_age?: string;
}

export interface Alert {
  alert: string;
  state: "firing" | "resolved";
  since: string;
  until?: string;
  topic?: string;
  partition?: number;
  node?: string;
  group?: string;
  detail: string;
  advice: string;
}

export interface Connection {
  connection: string;
  node: string;
  principal?: string | null;
  transport: string;
  address: string;
  since: string;
  subscriptions: number;
  in_rate: number;
  out_rate: number;
  behind: number;
}

export interface Connections {
  connections: Connection[];
  missing?: string[];
}

export interface Member {
  member: string;
  node: string;
  since: string;
  partitions: number[];
}

export interface GroupPartition {
  partition: number;
  member: string | null;
  committed: number | null;
  in_flight: number | null;
  end: number | null;
  lag: number | null;
  oldest_unacked: string | null;
  redelivered: number | null;
  dead: number | null;
  expired: number | null;
  paused: boolean | null;
}

export interface Group {
  group: string;
  topic: string;
  mode: "exclusive" | "shared";
  from: string;
  lease: string;
  session: string;
  max_deliveries: number;
  backoff: string;
  dead_letter: string;
  max_in_flight: number;
  created: string;
  members: Member[];
  /** Missing in a list of groups. */
  partitions?: GroupPartition[];
}

export interface Moved {
  group: string;
  dry_run: boolean;
  partitions: { partition: number; from: number | null; to: number }[];
}

export interface Message {
  topic: string;
  partition: number;
  offset: number;
  timestamp: string;
  key: string | null;
  content_type: string;
  headers: Record<string, string>;
  value?: unknown;
  value_base64?: string;
  tombstone?: boolean;
}

export interface Page {
  messages: Message[];
  cursor: string;
  end: boolean;
}

export interface RecordStatus {
  groups: { group: string; status: string; member?: string; lease_until?: string; delivery?: number }[];
}

/** RFC 9457, with the members of its code. */
export interface Problem {
  code: string;
  title?: string;
  status?: number;
  detail?: string;
  [member: string]: unknown;
}
