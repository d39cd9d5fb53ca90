// Package session decides at the leading coordinator which lives of groups' members are
// over, because nobody heard of them for as long as their sessions last. It is pure: it is
// told the time, the signs of life and what the feed says, and names the lives.
//
// Nothing here is kept: a coordinator that begins to lead gives everybody a full session,
// else a change of the leader would end them all. A member counts as heard when its join
// is seen. One that is late itself gives everybody as much time as it was late, and judges
// nobody before the signs of life that had queued up meanwhile (rule C5).
//
// It ends no life: what it names is proposed, and the state machine passes over lives that
// are over already.
package session
