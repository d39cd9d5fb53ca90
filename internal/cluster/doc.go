// Package cluster describes what every node knows of the cluster: topics,
// their settings and layouts, the state of partitions, nodes. The coordinator
// decides these values, the change feed carries them, gateways route by them
// and brokers act on them. All of it is plain data; a Snapshot and everything
// it points to is immutable once published, so it is shared without locks.
package cluster
