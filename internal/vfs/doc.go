// Package vfs is the seam between the durable log and the file system: the few
// calls that journal and segments need, as an interface, and the real
// implementation of it. Tests put internal/testkit/faultfs in its place.
//
// What callers rely on, and a file system has to keep:
//
//   - After File.Sync the bytes written before it, and the size they need,
//     survive a power cut. Unsynced bytes survive in any combination of sectors.
//   - After FS.SyncDir the entries of that folder survive: creations, removals
//     and renames. A new file needs both its own Sync and its folder's SyncDir.
//   - Whole.SyncAll does both for everything at once.
//   - A rename inside one folder is atomic.
//   - A file that was removed stays readable through handles opened before.
//
// Nothing is mapped into memory: an I/O error has to come back as an error.
package vfs
