package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/conformance"
	"tidewire/e2e/harness"
	"tidewire/internal/ident"
)

// readVectors reads a file of e2e/conformance.
func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	b, err := conformance.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

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
	var v keyVectors
	readVectors(t, "keys.json", &v)
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
	t.Parallel()
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

// TestRecordsGoThereAndBackAsTheVectorsSay publishes every record of the vectors as a
// frame and as a line, and reads it back.
func TestRecordsGoThereAndBackAsTheVectorsSay(t *testing.T) {
	var v struct {
		Cases []struct {
			Says             string
			Publish, Message map[string]any
		}
	}
	readVectors(t, "records.json", &v)
	api := client.New(harness.Start(t, harness.Options{}).URL)
	api.CreateTopic(t, "frames", "")
	api.CreateTopic(t, "lines", "")
	w := dialTo(t, within(t), api)
	for i, c := range v.Cases {
		line := string(encoded(t, c.Publish))
		api.Must(t, 201, "POST", "/topics/lines", linesType, line)
		c.Publish["op"], c.Publish["id"], c.Publish["topic"] = "publish", i+1, "frames"
		if f, err := w.Call(within(t), int64(i+1), c.Publish); err != nil || f.Op != "published" {
			t.Fatalf("%s: %v %s", c.Says, err, f.Raw)
		}
	}
	for _, topic := range []string{"frames", "lines"} {
		var page struct{ Messages []map[string]any }
		parse(t, api.Must(t, 200, "GET", "/topics/"+topic, "", "").Body, &page)
		if len(page.Messages) != len(v.Cases) {
			t.Fatalf("%d of %d records are in %s", len(page.Messages), len(v.Cases), topic)
		}
		for i, got := range page.Messages {
			for _, name := range []string{"topic", "partition", "offset", "timestamp"} {
				delete(got, name)
			}
			if c := v.Cases[i]; !reflect.DeepEqual(got, c.Message) {
				t.Errorf("%s, in %s: got %v, want %v", c.Says, topic, got, c.Message)
			}
		}
	}
}

// TestLinesAreAnsweredAsTheVectorsSay posts the bodies of the vectors.
func TestLinesAreAnsweredAsTheVectorsSay(t *testing.T) {
	var v struct {
		Cases []struct {
			Says, Producer string
			Sequence       int
			Lines          []string
			Status         int
			Answers        []map[string]any
		}
	}
	readVectors(t, "lines.json", &v)
	api := client.New(harness.Start(t, harness.Options{}).URL)
	api.CreateTopic(t, "orders", `"max_message_bytes":100`)
	for _, c := range v.Cases {
		path, headers := "/topics/orders", []string{}
		if c.Producer != "" {
			path += "?partition=0"
			headers = []string{"Tidewire-Producer", c.Producer, "Tidewire-Sequence", strconv.Itoa(c.Sequence)}
		}
		body := strings.Join(c.Lines, "\n") + "\n"
		ans, err := api.Do(t.Context(), "POST", path, linesType, body, headers...)
		if err != nil || ans.Status != c.Status {
			t.Errorf("%s: %v %d %s", c.Says, err, ans.Status, ans.Body)
		}
		lines := strings.Split(strings.TrimSpace(ans.Body), "\n")
		if len(lines) != len(c.Answers) {
			t.Fatalf("%s: %d answers: %s", c.Says, len(lines), ans.Body)
		}
		for i, line := range lines {
			var got map[string]any
			parse(t, line, &got)
			for name, want := range c.Answers[i] {
				if got[name] != want {
					t.Errorf("%s, line %d: %s is %v, want %v: %s", c.Says, i+1, name, got[name], want, line)
				}
			}
		}
	}
}
