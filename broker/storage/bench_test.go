package storage

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkDurableAppends has 256 writers that wait for each record of 1 KiB to
// be durable, spread over few and over many partitions.
func BenchmarkDurableAppends(b *testing.B) {
	for _, parts := range []int{4, 200} {
		b.Run(fmt.Sprintf("partitions=%d", parts), func(b *testing.B) {
			s := start(b, Config{Dir: b.TempDir()})
			locks := make([]sync.Mutex, parts) // what a leader's own lock does
			logs := make([]*Log, parts)
			for n := range parts {
				logs[n] = s.mustLog(b, part(n), LogConfig{})
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.SetBytes(1024)
			b.ResetTimer()
			began := time.Now()
			for w := range 256 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					n := w % parts
					l := logs[n]
					template := batch(l.part, 1, 0, 1, 1, 1024)
					done := make(chan error, 1)
					for left.Add(-1) >= 0 {
						for l.Admit(len(template)) != nil {
							time.Sleep(time.Millisecond)
						}
						mine := append(template[:0:0], template...)
						locks[n].Lock()
						place(mine, l.part, 1, l.End(), 1)
						err := l.Append(mine, nil, func(err error) { done <- err })
						locks[n].Unlock()
						if err == nil {
							err = <-done
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				}()
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "records/s")
			b.StopTimer()
			s.mustClose(b)
		})
	}
}
