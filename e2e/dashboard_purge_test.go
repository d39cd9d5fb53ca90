package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/chromium"
)

// TestTheDashboardDiscardsAndPurges takes records out of topics, and says before which ones
// those are.
func TestTheDashboardDiscardsAndPurges(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	n := harness.Start(t, harness.Options{})
	api := client.New(n.URL)
	ctx := t.Context()
	api.CreateTopic(t, "jobs", `"partitions":1`)
	for i := range 10 {
		api.Must(t, http.StatusCreated, http.MethodPost, "/topics/jobs", jsonType, fmt.Sprintf(`{"job":%d}`, i))
	}
	if _, err := api.RegisterGroup(ctx, "jobs", "crew", `"session":"1h"`); err != nil {
		t.Fatal(err)
	}
	j, err := api.JoinGroup(ctx, "jobs", "crew", "m1")
	if err != nil {
		t.Fatal(err)
	}
	took, err := api.TakeMessages(ctx, "jobs", "crew", j, 5, "5s")
	if err != nil || len(took) != 5 {
		t.Fatalf("%d leased, %v", len(took), err)
	}
	s := client.Settlement{Member: j.Member, Epoch: j.Epoch}
	for _, m := range took {
		s.Reject = append(s.Reject, client.RejectionAt{At: client.At{Partition: m.Partition, Offset: m.Offset}, Reason: "no such customer"})
	}
	if _, err := api.Settle(ctx, "jobs", "crew", s); err != nil {
		t.Fatal(err)
	}
	begins := func(topic string) int64 { return api.Topic(t, topic).Layout.Partitions[0].Earliest }
	says := func(text string) string {
		return `document.querySelector("dialog #goes")?.textContent.includes(` + chromium.Quote(text) + `)`
	}

	// One letter goes with the older ones, and the page says how many that are.
	const letters = "jobs.crew.dlq"
	p := openDashboard(t, b, n.URL, "/topics/"+letters+"/messages")
	p.until("all letters", `records().length === 5`)
	p.until("none of them is chosen", `button("Discard up to here").disabled`)
	p.js(`document.querySelector("[data-row='0:2'] input").click()`)
	p.click("Discard up to here")
	p.asks("Discard 3 letters")
	p.until("which ones go", says("3 letters, offsets 0 to 2"))
	p.click("Cancel")
	p.until("nothing is asked any more", `!document.querySelector("dialog")`)
	if at := begins(letters); at != 0 {
		t.Errorf("the letters begin at %d, and nothing was confirmed", at)
	}
	p.click("Discard up to here")
	p.asks("Discard 3 letters")
	p.click("Discard")
	p.until("the others are left", `!document.querySelector("dialog") && records().length === 2 && !document.querySelector("[data-row='0:2']")`)
	if at := begins(letters); at != 3 {
		t.Errorf("the letters begin at %d", at)
	}

	p.show("/dead-letters")
	p.until("how many there are", `cell("`+letters+`", "Records") === "2"`)
	p.click("Discard all of " + letters)
	p.asks("Discard 2 letters")
	p.until("which ones go", says("All that "+letters+" holds now: 2 letters"))
	p.click("Discard")
	p.until("none is left", `!document.querySelector("dialog") && cell("`+letters+`", "Records") === "0"`)
	if at := begins(letters); at != 5 {
		t.Errorf("the letters begin at %d", at)
	}

	// A topic is purged once its name is typed.
	p.show("/topics/jobs/settings")
	p.click("Purge")
	p.asks("Purge jobs")
	p.until("all goes", says("10 records go"))
	p.js(`labelled("Only what is below").click()`)
	p.fill("Below the offsets", "0:11")
	p.until("what cannot go", `document.querySelector("dialog .refusal")?.textContent.includes("ends at offset 10")`)
	p.fill("Below the offsets", "0:4")
	p.until("some goes", says("4 records go"))
	p.until("not before its name is typed", `button("Purge").disabled`)
	p.fill("Type jobs to confirm", "jobs")
	p.click("Purge")
	p.until("it is purged", `!document.querySelector("dialog")`)
	p.until("the figures say so", `fact("Messages") === "6"`)
	if at := begins("jobs"); at != 4 {
		t.Errorf("the topic begins at %d", at)
	}
	p.click("Purge")
	p.asks("Purge jobs")
	p.until("the rest goes", says("6 records go"))
	p.fill("Type jobs to confirm", "jobs")
	p.click("Purge")
	p.until("nothing is left", `!document.querySelector("dialog") && fact("Messages") === "0"`)
	if all := api.ReadAll(t, "jobs", 0); len(all) != 0 {
		t.Errorf("%d records are left", len(all))
	}
}
