// Package conformance has what every client of Tidewire holds to, whatever its
// language: vectors (*.json) and scripts (scenarios/*.json). docs/clients.md tells what
// they mean. The SDK and the node are held to all of them; this package's own tests to
// those that need no process.
package conformance

import "embed"

// Files are the vectors and the scripts.
//
//go:embed *.json scenarios/*.json
var Files embed.FS
