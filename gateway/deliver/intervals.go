package deliver

import "time"

// What long-lived connections of every transport have in common.
const (
	// DefaultSlowConsumerTimeout ends a connection that takes no byte for as long.
	DefaultSlowConsumerTimeout = 10 * time.Second
	// DefaultDrainWindow is what the retry_after of a drain is drawn from.
	DefaultDrainWindow = 5 * time.Second
)
