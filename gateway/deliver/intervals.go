package deliver

import "time"

// DefaultSlowConsumerTimeout ends a connection of any transport that takes no byte
// for as long.
const DefaultSlowConsumerTimeout = 10 * time.Second
