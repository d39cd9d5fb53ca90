// Package ask is request-reply at a gateway. A request is a record that carries an inbox;
// whoever waits for its reply waits here, and a reply that comes to any gateway finds the
// way to the one that was asked.
//
// The life of a request: Begin looks whether anybody serves the topic, opens the box for a
// token that nobody can guess, and publishes the record. Its client hears that it is kept,
// and then of the reply or of an error, whatever comes first; after the timeout that is
// reply-timeout. A client that leaves takes its request along, but for one that gave a
// correlation id: that is kept until its deadline, so that a repeat finds it.
//
// The life of a repeat: in the same gateway it joins the wait. Elsewhere the partition's
// leader finds its record again; the original names the inbox of the gateway that was asked
// first, and the reply is collected there, or, where that is gone, from the mailbox of the
// partition's leader.
//
// The life of a reply: it is given to the box of this gateway, or handed to the gateway that
// the inbox names. Where that is gone it is kept at the leader of the request's partition,
// if the request can be repeated, and else nobody waits for it.
//
// A request costs no goroutine and no timer: one loop looks after all deadlines. A repeat
// that collects elsewhere has a goroutine, and they are bounded.
package ask
