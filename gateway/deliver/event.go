package deliver

// EventKind says what Next found.
type EventKind uint8

const (
	// Idle: everything committed was read; notify is called when there is more.
	Idle EventKind = iota
	// Busy: nothing yet, but some of the log was passed over. Call again, after
	// others had their turn.
	Busy
	// Behind: the log has to be read, and Limit.Ring forbids it. Call again without.
	Behind
	// Messages: Run is not empty.
	Messages
	// Lost: Gap says what is missing; the subscription goes on behind it.
	Lost
	// Stuck: Err says why nothing more will come from one partition; the others
	// go on.
	Stuck
	// Ended: Err says why nothing more will come.
	Ended
)

// Event is what Next gives.
type Event struct {
	Kind EventKind
	Run  Run
	Gap  *Gap
	Err  error
}
