// Package liveness decides at the leading coordinator which lives of nodes are over.
// It is pure: it is told the time, the renewals, suspicions and what came of probes, and
// says what to probe and what to declare over.
//
// The life of a lease: a node renews it every quarter of its length. One that runs out
// is no verdict: the coordinator probes the node, and only silence for ProbeWait ends the
// life. A broken stream or a refused connection that somebody reports leads to a probe at
// once, and where the coordinator's own probe is refused nobody listens: the life is over
// without waiting for its lease.
//
// A coordinator doubts itself before it doubts others (rule C5). One that was stalled
// gives every lease the time that it was late, and judges nobody before the renewals
// that had queued up meanwhile. One that has just begun to lead knows of no lease: it
// probes every node, and only an answer or a renewal gives a fresh one. Before it declares
// more than half of the nodes over it proves that it leads, and probes them again.
//
// It promises that no life is declared over without a probe that this coordinator made
// itself, but for nodes that answer and for Mute have not renewed: those cannot reach the
// coordinator and would keep what needs a lease from working for ever. It does not fence
// anybody: the declared end is a command of the state machine, and leaders and followers
// fence by the epochs in it.
package liveness
