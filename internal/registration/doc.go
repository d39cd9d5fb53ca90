// Package registration lives a node's lives: it registers the node with the
// coordinator, keeps its lease, and begins another life when one is over.
//
// One life: Register gives a broker epoch; the feed reaches it, so that nothing older
// is acted on; the epoch is noted in the data folder, so that an older copy of the
// folder is known for one; the node's parts take the new life (OnLife); Activate makes
// it count; renewals keep it. A coordinator that calls the life over (fenced) ends it,
// and so does the node itself where it has something to say that only a registration can
// (Renounce); the next begins, in the same process.
//
// A lease counts from the moment at which its renewal was sent, by this process's
// monotonic clock: whoever granted it counts from later. Holds says whether there is one
// now, and Leads whether there is one for who knows no more than a snapshot: another node
// may lead by a later one. Without one the life goes on, and what needs a lease waits.
//
// A stop in good order declares its own life over, last of all: nobody waits for its
// lease then.
package registration
