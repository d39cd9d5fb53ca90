package obs

import (
	"fmt"
	"log/slog"
	"math"

	"golang.org/x/sys/unix"
)

// Descriptors divides the files the process may hold open. A socket is a file:
// past the ceiling accept fails in a loop, so the node refuses connections
// before it.
type Descriptors struct {
	Ceiling     int // RLIMIT_NOFILE of this process
	LogFiles    int // for the partitions' segments and journals
	Other       int // listeners, store, indexes being written, dials
	Peers       int // connections between nodes
	Connections int // the rest: clients
}

const (
	mostLogFiles = 1000
	mostOther    = 256
	leastOther   = 64
	// Each of the others has one for calls, and one for each of two streams.
	mostPeers  = 96
	leastPeers = 32
	// leastCeiling is what a node works with; below it work that needs files
	// would wait for one another.
	leastCeiling = 256
)

// ReadDescriptors reads the ceiling. The Go runtime has raised the soft limit
// to the hard one by then.
func ReadDescriptors() (Descriptors, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return Descriptors{}, fmt.Errorf("read the limit of open files: %w", err)
	}
	return Divide(limit.Cur)
}

// Divide shares a ceiling out: under a low one the files of the log get a
// quarter and the rest an eighth of it. One that is too low is an error that says so.
func Divide(ceiling uint64) (Descriptors, error) {
	if ceiling < leastCeiling {
		return Descriptors{}, fmt.Errorf("this process may have %d open files, and a node needs %d at least: raise the limit (ulimit -n, LimitNOFILE=) to %d or more", ceiling, leastCeiling, leastCeiling)
	}
	c := int(min(ceiling, math.MaxInt32)) // unlimited is far above what a kernel has
	d := Descriptors{Ceiling: c, LogFiles: min(mostLogFiles, c/4), Other: max(leastOther, min(mostOther, c/8)), Peers: max(leastPeers, min(mostPeers, c/16))}
	d.Connections = c - d.LogFiles - d.Other - d.Peers
	return d, nil
}

// MaxConnections is the bound of connections: the one asked for, or all there
// is room for. More than that is an error that says what to raise.
func (d Descriptors) MaxConnections(asked int) (int, error) {
	if asked == 0 {
		return d.Connections, nil
	}
	if asked > d.Connections {
		return 0, fmt.Errorf("max_connections: %d needs more open files than the process may have: the limit is %d, of which %d are for the log and the node itself; raise it (ulimit -n, LimitNOFILE=) to %d or more",
			asked, d.Ceiling, d.Ceiling-d.Connections, asked+mostLogFiles+mostOther+mostPeers)
	}
	return asked, nil
}

// LogValue shows the division in a log.
func (d Descriptors) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int("ceiling", d.Ceiling), slog.Int("log_files", d.LogFiles),
		slog.Int("other", d.Other), slog.Int("peers", d.Peers), slog.Int("connections", d.Connections))
}
