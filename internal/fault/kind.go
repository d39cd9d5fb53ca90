package fault

// Kind says what the caller can do about an error.
type Kind uint8

// The kinds, in the order of the public table. The zero value is an error that
// nobody classified.
const (
	Internal Kind = iota
	Invalid
	UnknownField
	ReservedName
	Unauthorized
	Forbidden
	TopicNotFound
	PartitionNotFound
	OffsetNotFound
	GroupNotFound
	MemberNotFound
	NodeNotFound
	NotFound
	MethodNotAllowed
	TopicExists
	GroupExists
	GroupHasMembers
	Fenced
	OutOfOrderSequence
	UnknownProducer
	PartitionSealed
	WrongPartition
	RepartitionInProgress
	OffsetExpired
	CursorExpired
	RequesterGone
	MessageTooLarge
	UnsupportedMediaType
	IdempotencyKeyReused
	Throttled
	Limit
	NotEnoughReplicas
	LeaderUnavailable
	NoResponders
	DiskFull
	CoordinatorUnavailable
	Draining
	UnknownOutcome
	ReplyTimeout
	numKinds
)

type row struct {
	code   string
	status int
	retry  bool // the same call may succeed later without a change
	title  string
	advice string // what to do, for the page of the problem
}

var table = [numKinds]row{
	Internal:               {"internal", 500, false, "Internal error", "Something broke that the server did not expect. Its log has the details; please report it with them."},
	Invalid:                {"invalid", 400, false, "Invalid request", "The detail names the field and what is allowed there. Correct the request and send it again."},
	UnknownField:           {"unknown-field", 400, false, "Unknown field or parameter", "A field or parameter is not known here; the detail names the nearest known one. Nothing is ever ignored silently."},
	ReservedName:           {"reserved-name", 400, false, "Reserved name", "The name belongs to the cluster or to the API itself. Choose another."},
	Unauthorized:           {"unauthorized", 401, false, "Unauthorized", "Send a valid token as \"Authorization: Bearer …\", or in hello over a WebSocket. The member reason says what is wrong with the one that came; one that has expired needs a fresh one."},
	Forbidden:              {"forbidden", 403, false, "Forbidden", "The caller lacks the right that the detail names, or its origin is not allowed."},
	TopicNotFound:          {"topic-not-found", 404, false, "Topic not found", "Create the topic first: POST /topics/ {\"name\": …}, or tidewire topic create."},
	PartitionNotFound:      {"partition-not-found", 404, false, "Partition not found", "The topic has no such partition. GET /topics/{topic}/metadata lists those it has."},
	OffsetNotFound:         {"offset-not-found", 404, false, "Offset not found", "No committed record has this offset yet."},
	GroupNotFound:          {"group-not-found", 404, false, "Group not found", "Register the group first."},
	MemberNotFound:         {"member-not-found", 404, false, "Member not found", "Join the group first."},
	NodeNotFound:           {"node-not-found", 404, false, "Node not found", "GET /nodes/ lists the nodes."},
	NotFound:               {"not-found", 404, false, "Not found", "There is nothing at this address. /openapi.json lists every call."},
	MethodNotAllowed:       {"method-not-allowed", 405, false, "Method not allowed", "The Allow header lists the methods of this address."},
	TopicExists:            {"topic-exists", 409, false, "Topic exists", "A topic of this name has other settings; the detail names them. Change them with PATCH, or choose another name."},
	GroupExists:            {"group-exists", 409, false, "Group exists", "A group of this name has other settings."},
	GroupHasMembers:        {"group-has-members", 409, false, "Group has members", "Stop the members first, or force the change."},
	Fenced:                 {"fenced", 409, false, "Fenced", "A newer epoch owns this; join or connect again."},
	OutOfOrderSequence:     {"out-of-order-sequence", 409, false, "Out-of-order sequence", "A sequence number was skipped. Send the one named by expected first."},
	UnknownProducer:        {"unknown-producer", 409, false, "Unknown producer", "The partition does not know this producer, or no longer. Start a new producer (a new UUID) at sequence 0."},
	PartitionSealed:        {"partition-sealed", 409, false, "Partition sealed", "The partition takes no more records; its children do."},
	WrongPartition:         {"wrong-partition", 409, false, "Wrong partition", "The key's hash belongs to another partition. Leave partition out, or take it from GET /topics/{topic}/metadata."},
	RepartitionInProgress:  {"repartition-in-progress", 409, true, "Repartition in progress", "Wait until the topic's repartition has ended."},
	OffsetExpired:          {"offset-expired", 410, false, "Offset expired", "The record is no longer kept: retention or a purge took it. Read on from earliest."},
	CursorExpired:          {"cursor-expired", 410, false, "Cursor expired", "The cursor points to what is no longer kept, or to another life of the topic. Go on from the cursor in the answer."},
	RequesterGone:          {"requester-gone", 410, false, "Requester gone", "The requester has left or has its reply already."},
	MessageTooLarge:        {"message-too-large", 413, false, "Message too large", "The detail names the limit. Send less at once."},
	UnsupportedMediaType:   {"unsupported-media-type", 415, false, "Unsupported media type", "The detail names the media types that are taken."},
	IdempotencyKeyReused:   {"idempotency-key-reused", 422, false, "Idempotency key reused", "The same Idempotency-Key, or correlation id of a request, came with another body. Use a new one for a new record."},
	Throttled:              {"throttled", 429, true, "Throttled", "Too much at once; wait as long as Retry-After says."},
	Limit:                  {"limit", 429, true, "Limit reached", "A limit is reached; the detail names it, and the member limit too. With the status 503 it is the node that has no room for another connection: connect to another, or come back after Retry-After."},
	NotEnoughReplicas:      {"not-enough-replicas", 503, true, "Not enough replicas", "Too few in-sync replicas; nothing was kept. Try again later."},
	LeaderUnavailable:      {"leader-unavailable", 503, true, "Leader unavailable", "The partition has no leader that can serve; nothing was kept. Try again later."},
	NoResponders:           {"no-responders", 503, true, "No responders", "No live group member serves this topic."},
	DiskFull:               {"disk-full", 503, true, "Disk full", "The broker's disk has too little free space; nothing was kept. Free space or add disk: it heals by itself."},
	CoordinatorUnavailable: {"coordinator-unavailable", 503, true, "Coordinator unavailable", "The coordinator has no leader; try again in a moment."},
	Draining:               {"draining", 503, true, "Draining", "The node starts, stops or is drained; connect to another, or again in a moment."},
	UnknownOutcome:         {"unknown-outcome", 504, true, "Unknown outcome", "The record may have been kept, or not. Repeat it with the same sequence or Idempotency-Key to be sure."},
	ReplyTimeout:           {"reply-timeout", 504, true, "Reply timeout", "No reply came before the deadline."},
}

// Code is the slug of the kind, the same in problems, error frames and logs.
func (k Kind) Code() string { return k.row().code }

// Status is the HTTP status of the kind.
func (k Kind) Status() int { return k.row().status }

// Retryable reports whether the same call may succeed later without a change.
func (k Kind) Retryable() bool { return k.row().retry }

// Title is a short constant sentence for people.
func (k Kind) Title() string { return k.row().title }

// Advice says what to do about it.
func (k Kind) Advice() string { return k.row().advice }

func (k Kind) String() string { return k.row().code }

func (k Kind) row() row {
	if k >= numKinds {
		k = Internal
	}
	return table[k]
}

// Kinds returns every kind, in the order of the table.
func Kinds() []Kind {
	all := make([]Kind, numKinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// ByCode finds the kind of a slug.
func ByCode(code string) (Kind, bool) {
	for k := range numKinds {
		if table[k].code == code {
			return k, true
		}
	}
	return Internal, false
}
