package storage

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/broker/journal"
	"tidewire/internal/vfs"
)

// Config of a data folder. A zero field means its default.
type Config struct {
	Dir string // required; created if missing
	FS  vfs.FS // the machine's own

	JournalFileBytes int64         // size of a journal file; 32 MiB
	CheckpointBytes  int64         // journal bytes after which a checkpoint is made; two files
	IdleMark         time.Duration // silence after which the journal covers its last frame; 500ms
	QueueBytes       int64         // most that may wait for the journal, on a quick disk; 64 MiB
	FlushBytes       int           // a log's tail is written to its segment past this; 256 KiB
	FlushAge         time.Duration // or at this age; 1s
	UnflushedBytes   int64         // most that all tails should hold; 64 MiB. At four times that, appends are throttled
	IndexBytes       int64         // distance of index entries; 16 KiB
	IndexCacheBytes  int64         // memory for indexes of segments that are read; 16 MiB
	OpenFiles        int           // most segment files open at once; 1,000
	MinFreeBytes     int64         // appends are refused below this much free space; 64 MiB
	LastCheckpoint   time.Duration // what Run's end may spend on a checkpoint; 10s
	ScrubBytes       int64         // what the scrub reads in a second; 8 MiB. Negative: there is none
	ScrubEvery       time.Duration // how often a pass of the scrub begins; 24h
	RetrySpace       time.Duration // how often to try again when the disk is full; 1s

	frameBytes  int // of the journal; its default. Tests make groups of several frames
	syncsAtOnce int // with more changed logs a checkpoint syncs the whole file system; 32

	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

const defaultIndexBytes = 16 << 10

func (c Config) withDefaults() Config {
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	c.JournalFileBytes = cmp.Or(c.JournalFileBytes, 32<<20)
	c.CheckpointBytes = cmp.Or(c.CheckpointBytes, 2*c.JournalFileBytes)
	c.QueueBytes = cmp.Or(c.QueueBytes, 64<<20)
	c.FlushBytes = cmp.Or(c.FlushBytes, 256<<10)
	c.FlushAge = cmp.Or(c.FlushAge, time.Second)
	c.UnflushedBytes = cmp.Or(c.UnflushedBytes, 64<<20)
	c.IndexBytes = cmp.Or(c.IndexBytes, defaultIndexBytes)
	c.IndexCacheBytes = cmp.Or(c.IndexCacheBytes, 16<<20)
	c.OpenFiles = cmp.Or(c.OpenFiles, 1000)
	c.MinFreeBytes = cmp.Or(c.MinFreeBytes, 64<<20)
	c.syncsAtOnce = cmp.Or(c.syncsAtOnce, 32)
	c.LastCheckpoint = cmp.Or(c.LastCheckpoint, 10*time.Second)
	c.ScrubBytes = cmp.Or(c.ScrubBytes, 8<<20)
	c.ScrubEvery = cmp.Or(c.ScrubEvery, 24*time.Hour)
	c.RetrySpace = cmp.Or(c.RetrySpace, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("a folder is required"))
	}
	if c.JournalFileBytes < journal.MinFileBytes {
		errs = append(errs, fmt.Errorf("journal files of %d bytes: at least %d", c.JournalFileBytes, journal.MinFileBytes))
	}
	if c.OpenFiles < 1 || c.FlushBytes < 1 || c.IndexBytes < 1 || c.QueueBytes < 1 {
		errs = append(errs, errors.New("sizes and counts have to be positive"))
	}
	return errors.Join(errs...)
}

func (c Config) journal() journal.Config {
	return journal.Config{
		FS: c.FS, Dir: journalDir(c.Dir), FileBytes: c.JournalFileBytes, FrameBytes: c.frameBytes, QueueBytes: c.QueueBytes,
		IdleMark: c.IdleMark, RetrySpace: c.RetrySpace, Logger: c.Logger,
	}
}

// LogConfig tunes one partition's log. A zero field means its default.
type LogConfig struct {
	RetentionAge   time.Duration // records older than this may go; 0: never
	RetentionBytes int64         // what the log may hold; 0: no bound
	// SegmentBytes and SegmentAge say when the active segment rolls. By
	// default they follow from the retention: 64 MiB and 24 h at most, and an
	// eighth of what is kept, so that what retention drops at once is small.
	SegmentBytes int64
	SegmentAge   time.Duration
}

const (
	maxSegmentBytes = 64 << 20
	minSegmentBytes = 64 << 10
	maxSegmentAge   = 24 * time.Hour
	minSegmentAge   = time.Second
)

func (c LogConfig) withDefaults() LogConfig {
	if c.SegmentBytes == 0 {
		c.SegmentBytes = maxSegmentBytes
		if c.RetentionBytes > 0 {
			c.SegmentBytes = min(maxSegmentBytes, max(c.RetentionBytes/8, minSegmentBytes))
		}
	}
	// Without a bound on age a roll by age only makes files.
	if c.SegmentAge == 0 && c.RetentionAge > 0 {
		c.SegmentAge = min(maxSegmentAge, max(c.RetentionAge/8, minSegmentAge))
	}
	return c
}
