//go:build faultfs

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"tidewire/internal/vfs"
)

// faultsVariable names the Unix socket on which a test arms faults of the disk.
// Only binaries built with the tag faultfs know it; others refuse it as an
// unknown setting.
const faultsVariable = "TIDEWIRE_FAULTS"

// dataDisk is the machine's disk with faults, if the variable asks for it.
func dataDisk(environ []string) (disk vfs.FS, rest []string, err error) {
	socket := ""
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, faultsVariable+"="); ok {
			socket = v
			continue
		}
		rest = append(rest, e)
	}
	if socket == "" {
		return vfs.OS{}, rest, nil
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", faultsVariable, err)
	}
	d := &faultyDisk{}
	d.serving.Go(func() { d.serve(l) })
	return d, rest, nil
}

// faultyDisk is a disk whose faults are armed over a socket, one command a
// line, each answered by one line that begins with ok or error:
//
//	<op> <part of a path> <n> <what> [always]
//	clear
//	hits
//
// op is read, write, sync, create or syncdir. The n-th such call from now on
// whose path holds the part fails with what, a duration makes it last so long
// instead; with always every later one does as well. hits answers how many
// calls were struck so far.
type faultyDisk struct {
	vfs.OS
	serving sync.WaitGroup // as long as the process lives

	mu     sync.Mutex
	faults []*diskFault
	hits   int
}

type diskFault struct {
	op, part string
	left     int // calls until it strikes
	always   bool
	err      error
	latency  time.Duration
}

var diskErrors = [...]struct {
	name string
	err  error
}{{"EIO", syscall.EIO}, {"ENOSPC", syscall.ENOSPC}, {"EROFS", syscall.EROFS}}

func (d *faultyDisk) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if _, err := fmt.Fprintln(c, d.command(lines.Text())); err != nil {
				break
			}
		}
		_ = c.Close() // the test's end has gone already
	}
}

func (d *faultyDisk) command(line string) string {
	words := strings.Fields(line)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case line == "clear":
		d.faults = nil
		return "ok"
	case line == "hits":
		return fmt.Sprintf("ok %d", d.hits)
	case len(words) < 4:
		return "error: <op> <part of a path> <n> <what> [always]"
	}
	n, err := strconv.Atoi(words[2])
	if err != nil || n < 1 {
		return "error: n is a number from 1"
	}
	f := &diskFault{op: words[0], part: words[1], left: n, always: len(words) > 4}
	for _, e := range diskErrors {
		if e.name == words[3] {
			f.err = e.err
		}
	}
	if f.err == nil {
		if f.latency, err = time.ParseDuration(words[3]); err != nil {
			return "error: what is EIO, ENOSPC, EROFS or a duration"
		}
	}
	d.faults = append(d.faults, f)
	return "ok"
}

// strike is asked before each call.
func (d *faultyDisk) strike(op, path string) error {
	d.mu.Lock()
	var latency time.Duration
	var err error
	for _, f := range d.faults {
		if f.op != op || !strings.Contains(path, f.part) {
			continue
		}
		if f.left > 0 {
			f.left--
		}
		if f.left > 0 || f.left < 0 {
			continue
		}
		if !f.always {
			f.left = -1
		}
		d.hits++
		latency += f.latency
		err = cmp.Or(err, f.err)
	}
	d.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency)
	}
	if err != nil {
		return &os.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

func (d *faultyDisk) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return faultyFile{f, d, name}, nil
}

// Create implements vfs.FS.
func (d *faultyDisk) Create(name string) (vfs.File, error) {
	if err := d.strike("create", name); err != nil {
		return nil, err
	}
	f, err := d.OS.Create(name)
	return d.wrap(name, f, err)
}

// Open implements vfs.FS.
func (d *faultyDisk) Open(name string) (vfs.File, error) {
	f, err := d.OS.Open(name)
	return d.wrap(name, f, err)
}

// OpenWrite implements vfs.FS.
func (d *faultyDisk) OpenWrite(name string) (vfs.File, error) {
	f, err := d.OS.OpenWrite(name)
	return d.wrap(name, f, err)
}

// SyncDir implements vfs.FS.
func (d *faultyDisk) SyncDir(name string) error {
	if err := d.strike("syncdir", name); err != nil {
		return err
	}
	return d.OS.SyncDir(name)
}

// Whole implements vfs.FS. A sync of everything is one of the segments, too: a
// fault of those strikes it.
func (d *faultyDisk) Whole(dir string) (vfs.Whole, error) {
	w, err := d.OS.Whole(dir)
	if err != nil {
		return nil, err
	}
	return faultyWhole{w, d, dir}, nil
}

type faultyWhole struct {
	vfs.Whole
	disk *faultyDisk
	dir  string
}

func (w faultyWhole) SyncAll() error {
	if err := w.disk.strike("sync", w.dir+"/*.log"); err != nil {
		return err
	}
	return w.Whole.SyncAll()
}

type faultyFile struct {
	vfs.File
	disk *faultyDisk
	name string
}

func (f faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.disk.strike("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.disk.strike("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f faultyFile) Sync() error {
	if err := f.disk.strike("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

var _ vfs.FS = (*faultyDisk)(nil)
