// Package catchup makes sure that this node has heard of what was decided, before it says
// that something is not there: it may have been made a moment ago, by way of another node.
//
// It promises that what was answered anywhere, before a catch-up was asked for, is in the
// snapshot afterwards: the leading coordinator says what is decided, and proves that it
// leads, and this node's snapshot is waited for. Where that cannot be had in time the
// snapshot is as it was, and for a while nobody waits any more.
//
// Whoever asks while a catch-up is under way gets the next one, together with all others
// who came meanwhile: that one may be older than what they ask about. So there is one
// call at a time, however many ask, and no more than so many a second: names that are
// made up cannot keep the coordinators busy.
//
// The life of one: CatchUp joins the next flight, which waits for the one before and for
// its turn, asks, waits for the feed, and lets those go who joined it.
package catchup
