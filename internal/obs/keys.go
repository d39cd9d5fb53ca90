package obs

// Keys of log attributes. One word for one thing, so that a log can be searched
// by it.
const (
	Topic        = "topic"
	Partition    = "partition"
	Epoch        = "epoch"
	Offset       = "offset"
	Connection   = "connection"
	Subscription = "subscription"
	Group        = "group"
	Member       = "member"
	Node         = "node"
	Producer     = "producer"
	Address      = "address"
	Component    = "component"
	Index        = "index" // of Raft
	Path         = "path"
	Bytes        = "bytes"
	Took         = "took"
	Code         = "code" // of a fault
	Err          = "err"
)
