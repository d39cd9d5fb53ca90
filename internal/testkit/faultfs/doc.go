// Package faultfs is the disk of the tests. Memory is a file system that keeps
// apart what was synced and what was not, so that a test can pull the plug:
// CrashClone gives the disk as a power cut may leave it, KillClone as the death
// of the process leaves it. Faulty stands in front of any file system and makes
// chosen operations fail, slow or lie.
//
// The power cut is as unkind as a disk may be. Of every file, each sector of
// 512 bytes independently holds what was synced, or any later state of it, or a
// mixture of two that follow one another; the size is the synced one, the
// latest, or one in between. Of every folder, each creation, removal and rename
// since its last sync independently happened or not; a rename within a folder
// is atomic, a rename between folders is durable once both are synced.
package faultfs
