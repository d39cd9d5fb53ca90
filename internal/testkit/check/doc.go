// Package check judges a history: what clients did and were told, what readers
// saw, and what the logs hold in the end. Each thing it looks for is named as
// the promise that would be broken (see Promise). It knows nothing of the
// system under test, so the same checker reads the histories of unit tests,
// simulations and real processes.
//
// The rules of a good history:
//
//   - Every record carries a value that is unique in the history. An operation
//     that repeats a record (a retry) is an operation of its own with the same value.
//   - An operation ends as OK, as Failed (a refusal that says nothing was kept)
//     or as Unknown. Whatever is not sure is Unknown, never Failed; an unknown
//     record may stand in the log or not, and both are right.
//   - The logs are read after everything has healed and nothing is written any more.
//
// A Recorder gathers a history from many goroutines. History.Check needs a few
// seconds for a million operations.
package check
