package boltcheck_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"tidewire/coordinator/consensus/boltcheck"
)

// file is a database with an inline bucket, a tree of three levels and values
// that overflow their page.
func file(t testing.TB) ([]byte, map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, PageSize: 1024, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	put := func(tx *bbolt.Tx, bucket, key, value string) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		want[bucket+"/"+key] = value
		return b.Put([]byte(key), []byte(value))
	}
	for round := range 20 {
		err := db.Update(func(tx *bbolt.Tx) error {
			if err := put(tx, "conf", "round", fmt.Sprint(round)); err != nil {
				return err
			}
			for i := range 25 {
				if err := put(tx, "logs", fmt.Sprintf("%08d", round*25+i), string(make([]byte, i*i*7))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, want
}

func check(b []byte) (map[string]string, error) {
	got := map[string]string{}
	err := boltcheck.Check(bytes.NewReader(b), int64(len(b)), func(bucket string, k, v []byte) error {
		got[bucket+"/"+string(k)] = string(v)
		return nil
	})
	return got, err
}

func TestEverythingIsFound(t *testing.T) {
	b, want := file(t)
	got, err := check(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d keys of %d", len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("%s differs", k)
		}
	}
}

func TestAnUnwholeMetaPageIsRefused(t *testing.T) {
	whole, _ := file(t)
	for page := range 2 {
		b := bytes.Clone(whole)
		b[page*1024+16+48]++ // the transaction's number
		if _, err := check(b); err == nil {
			t.Fatalf("meta page %d", page)
		}
	}
}

// resum makes the meta pages' checksums right again, so that the fuzzer reaches
// what lies behind them.
func resum(b []byte) {
	for page := range 2 {
		if at := page*1024 + 16; len(b) >= at+64 {
			h := fnv.New64a()
			h.Write(b[at : at+56])
			binary.NativeEndian.PutUint64(b[at+56:], h.Sum64())
		}
	}
}

// FuzzCheck harms one place of a whole file, or takes the fuzzer's own.
func FuzzCheck(f *testing.F) {
	whole, _ := file(f)
	f.Add(uint32(0), []byte{})
	f.Add(uint32(1024*7), []byte{1, 2, 3})
	f.Add(uint32(16+32), []byte{9})
	f.Fuzz(func(t *testing.T, at uint32, harm []byte) {
		b := bytes.Clone(whole)
		copy(b[int(at)%len(b):], harm)
		resum(b)
		if _, err := check(b); err != nil {
			return
		}
		// Whatever passes, bbolt opens and reads without a panic.
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
		if err != nil {
			t.Fatalf("passed, and bbolt refuses it: %v", err)
		}
		defer db.Close()
		err = db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
				return b.ForEach(func(k, v []byte) error { return nil })
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
