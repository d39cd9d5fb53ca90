//go:build !linux

package floor

import "os"

func syncData(f *os.File) error { return f.Sync() }

// InMemory reports a folder whose files are on no disk; here it cannot tell.
func InMemory(string) bool { return false }
