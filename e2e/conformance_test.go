package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/ident"
)

// keyVectors is e2e/conformance/keys.json, which was not made by this code.
type keyVectors struct {
	Layouts map[string][]uint64
	Keys    []struct {
		Key        string
		Hash       uint32
		Partitions map[string]int
	}
}

func readKeyVectors(t *testing.T) keyVectors {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("conformance", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v keyVectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Keys) < 100 || len(v.Layouts) != 4 {
		t.Fatalf("%d keys and %d layouts are too few", len(v.Keys), len(v.Layouts))
	}
	return v
}

func TestKeyHashHoldsToTheVectors(t *testing.T) {
	for _, k := range readKeyVectors(t).Keys {
		if got := ident.KeyHash(k.Key); got != k.Hash {
			t.Errorf("hash of %.40q is %d, want %d", k.Key, got, k.Hash)
		}
	}
}

// TestKeysGoToThePartitionOfTheVectors publishes every key to topics of every
// layout: over the wire a record goes where a client would compute it.
func TestKeysGoToThePartitionOfTheVectors(t *testing.T) {
	v := readKeyVectors(t)
	api := client.New(harness.Start(t, harness.Options{}).URL)
	for count, starts := range v.Layouts {
		topic := "layout-" + count
		info := api.CreateTopic(t, topic, `"partitions":`+count)
		if len(info.Layout.Partitions) != len(starts) {
			t.Fatalf("%s has %d partitions", topic, len(info.Layout.Partitions))
		}
		for i, p := range info.Layout.Partitions {
			end := uint64(1) << 32
			if i+1 < len(starts) {
				end = starts[i+1]
			}
			if p.ID != i || p.Lo != starts[i] || p.Hi != end {
				t.Errorf("%s: partition %d is %d [%d,%d), want [%d,%d)", topic, i, p.ID, p.Lo, p.Hi, starts[i], end)
			}
		}
		for _, k := range v.Keys {
			ans := api.Must(t, http.StatusCreated, http.MethodPost, "/topics/"+topic+"?key="+url.QueryEscape(k.Key), "text/plain", "v")
			place, err := ans.Place()
			if err != nil {
				t.Fatal(err)
			}
			if place.Partition != k.Partitions[count] {
				t.Errorf("%s: key %.40q went to partition %d, want %d", topic, k.Key, place.Partition, k.Partitions[count])
			}
			if n := len(starts); n > 1 { // its partition is taken, another is not
				query := "?key=" + url.QueryEscape(k.Key) + "&partition="
				api.Must(t, http.StatusCreated, http.MethodPost, "/topics/"+topic+query+strconv.Itoa(place.Partition), "text/plain", "v")
				wrong := api.Must(t, http.StatusConflict, http.MethodPost, "/topics/"+topic+query+strconv.Itoa((place.Partition+1)%n), "text/plain", "v")
				if p, err := wrong.Problem(); err != nil || p.Code != "wrong-partition" {
					t.Errorf("%s: key %.40q to another partition: %v %s", topic, k.Key, err, wrong.Body)
				}
			}
		}
	}
	t.Logf("%d keys, each to the partition of its vector in layouts of 1, 4, 7 and 256", len(v.Keys))
}
