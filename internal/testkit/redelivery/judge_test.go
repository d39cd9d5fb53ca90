package redelivery_test

import (
	"strings"
	"testing"
	"time"

	"tidewire/internal/testkit/redelivery"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is so many milliseconds after the beginning.
func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

func span(from, to int) redelivery.Span { return redelivery.Span{From: at(from), To: at(to)} }

var (
	ann = redelivery.Life{Member: "ann", Epoch: 1}
	bob = redelivery.Life{Member: "bob", Epoch: 2}
)

// given is a delivery of offset 7 of partition 3, under a lease of three seconds, that came
// at a moment.
func given(to redelivery.Life, number, came int) redelivery.Delivery {
	return redelivery.Delivery{
		Record: redelivery.Record{Partition: 3, Offset: 7}, Life: to, Number: number,
		Gateway: "n1", Call: span(came-10, came), Lease: 3 * time.Second,
	}
}

// settled is a delivery of which its member said something.
func settled(d redelivery.Delivery, said, heard int, taken bool) redelivery.Delivery {
	d.Said, d.Heard, d.Taken = at(said), at(heard), taken
	return d
}

func ofLife(kind redelivery.Kind, life redelivery.Life, s redelivery.Span) redelivery.Fault {
	return redelivery.Fault{Kind: kind, Life: life, Span: s}
}

func ofNode(node string, leads bool, s redelivery.Span) redelivery.Fault {
	return redelivery.Fault{Kind: redelivery.NodeKilled, Node: node, Leads: leads, Span: s}
}

func ofPartition(p int, s redelivery.Span) redelivery.Fault {
	return redelivery.Fault{Kind: redelivery.LeaderChanged, Partition: p, Span: s}
}

func lost(life redelivery.Life, node string, s redelivery.Span) redelivery.Fault {
	return redelivery.Fault{Kind: redelivery.AnswerLost, Life: life, Node: node, Span: s}
}

func TestARedeliveryIsExplainedByWhatWasDoneToItAndByNothingElse(t *testing.T) {
	const none = ""
	first := settled(given(ann, 1, 100), 200, 0, false)
	first.Heard = time.Time{} // said, and never answered
	again := given(bob, 2, 2500)
	for name, c := range map[string]struct {
		deliveries []redelivery.Delivery
		faults     []redelivery.Fault
		want       redelivery.Cause // none: it is told
	}{
		"nothing happened":                                      {[]redelivery.Delivery{first, again}, nil, none},
		"its member was killed":                                 {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.MemberKilled, ann, span(300, 310))}, redelivery.ByKill},
		"another member was killed":                             {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.MemberKilled, bob, span(300, 310))}, none},
		"another life of it was":                                {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.MemberKilled, redelivery.Life{Member: "ann", Epoch: 9}, span(300, 310))}, none},
		"its member had been killed before":                     {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.MemberKilled, ann, span(50, 60))}, none},
		"it was killed once the other one had it":               {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.MemberKilled, ann, span(2600, 2610))}, none},
		"its member left":                                       {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.MemberLeft, ann, span(300, 310))}, redelivery.ByLeave},
		"its leader changed":                                    {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofPartition(3, span(900, 1000))}, redelivery.ByLeader},
		"another partition's leader changed":                    {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofPartition(4, span(900, 1000))}, none},
		"its leader had changed before":                         {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofPartition(3, span(10, 80))}, none},
		"a node died, and its leader did not change":            {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofNode("n2", true, span(900, 1000))}, none},
		"what happened first is the cause":                      {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofPartition(3, span(900, 1000)), ofLife(redelivery.MemberLeft, ann, span(300, 310))}, redelivery.ByLeave},
		"its session ended in silence":                          {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.SessionOver, ann, span(150, 2200))}, redelivery.BySession},
		"its session ended although it was heard":               {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.SessionOver, ann, span(1500, 2200))}, none},
		"its session ended as a node died":                      {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.SessionOver, ann, span(1500, 2200)), ofNode("n2", false, span(1400, 9000))}, redelivery.BySession},
		"the session of another one ended":                      {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.SessionOver, bob, span(150, 2200))}, none},
		"coordinator and a member fell, with nothing under way": {[]redelivery.Delivery{first, again}, []redelivery.Fault{ofLife(redelivery.MemberKilled, bob, span(400, 410)), ofNode("n2", true, span(900, 1000))}, none},
		"it worked for longer than the lease":                   {[]redelivery.Delivery{settled(given(ann, 1, 100), 4000, 4010, false), given(bob, 2, 3500)}, nil, redelivery.ByWork},
		"it works still, after the lease":                       {[]redelivery.Delivery{given(ann, 1, 100), given(bob, 2, 3500)}, nil, redelivery.ByWork},
		"it came again before the lease was over":               {[]redelivery.Delivery{given(ann, 1, 100), given(bob, 2, 2900)}, nil, none},
		"it said so in time, and was not answered":              {[]redelivery.Delivery{settled(given(ann, 1, 100), 200, 5000, false), given(bob, 2, 3500)}, nil, none},
		"it was not answered, as a node was dead":               {[]redelivery.Delivery{settled(given(ann, 1, 100), 200, 5000, false), given(bob, 2, 3500)}, []redelivery.Fault{ofNode("n3", false, span(150, 6000))}, redelivery.ByWait},
		"the node died once the lease was over":                 {[]redelivery.Delivery{settled(given(ann, 1, 100), 200, 5000, false), given(bob, 2, 3500)}, []redelivery.Fault{ofNode("n3", false, span(3200, 6000))}, none},
		"it was refused before anything happened":               {[]redelivery.Delivery{settled(given(ann, 1, 100), 200, 250, false), again}, []redelivery.Fault{ofPartition(3, span(900, 1000))}, none},
		"it was acknowledged, whatever happened since":          {[]redelivery.Delivery{settled(given(ann, 1, 100), 200, 250, true), again}, []redelivery.Fault{ofPartition(3, span(220, 1000)), ofLife(redelivery.MemberKilled, ann, span(220, 230))}, none},
		"a takeover gives the number it had":                    {[]redelivery.Delivery{first, given(bob, 1, 2500)}, []redelivery.Fault{ofPartition(3, span(900, 1000))}, redelivery.ByLeader},
		"one delivery was seen by nobody":                       {[]redelivery.Delivery{given(ann, 2, 100)}, nil, none},
		"its answer died with the gateway":                      {[]redelivery.Delivery{given(ann, 2, 2000)}, []redelivery.Fault{lost(bob, "n1", span(400, 500)), ofNode("n1", false, span(450, 9000))}, redelivery.ByGateway},
		"its answer died, and the gateway did not":              {[]redelivery.Delivery{given(ann, 2, 2000)}, []redelivery.Fault{lost(bob, "n1", span(400, 500)), ofNode("n2", false, span(450, 9000))}, none},
		"its answer died with the member":                       {[]redelivery.Delivery{given(ann, 2, 2000)}, []redelivery.Fault{lost(bob, "n1", span(400, 500)), ofLife(redelivery.MemberKilled, bob, span(490, 500))}, redelivery.ByLoss},
		"an answer was lost too long ago":                       {[]redelivery.Delivery{given(ann, 2, 60_000)}, []redelivery.Fault{lost(bob, "n1", span(400, 500)), ofNode("n1", false, span(450, 9000))}, none},
		"an answer was lost later":                              {[]redelivery.Delivery{given(ann, 2, 2000)}, []redelivery.Fault{lost(bob, "n1", span(2400, 2500)), ofNode("n1", false, span(2450, 9000))}, none},
	} {
		h := redelivery.History{Session: 2 * time.Second, Reach: 30 * time.Second, Deliveries: c.deliveries, Faults: c.faults}
		r := h.Judge()
		switch told := len(r.Unexplained); {
		case r.Redeliveries != 1 || r.Records != 1:
			t.Errorf("%s: %d redeliveries of %d records", name, r.Redeliveries, r.Records)
		case c.want == none && (told != 1 || len(r.Causes) > 0):
			t.Errorf("%s: explained by %v", name, r.Causes)
		case c.want != none && (told != 0 || r.Causes[c.want] != 1):
			t.Errorf("%s: explained by %v, want %q: %s", name, r.Causes, c.want, r.Unexplained)
		}
	}
}

func TestEachRedeliveryIsJudgedByTheOneBeforeIt(t *testing.T) {
	h := redelivery.History{
		Session: 2 * time.Second, Reach: 30 * time.Second,
		Deliveries: []redelivery.Delivery{
			given(bob, 5, 4000), // the third; one that nobody had is counted before it
			given(ann, 1, 100), given(bob, 3, 1000),
			{Record: redelivery.Record{Partition: 3, Offset: 8}, Life: ann, Number: 1, Call: span(90, 100)},
		},
		Faults: []redelivery.Fault{
			lost(ann, "n1", span(200, 300)), ofNode("n1", true, span(250, 900)),
			ofLife(redelivery.MemberLeft, ann, span(310, 320)),
		},
	}
	r := h.Judge()
	if r.Redeliveries != 4 || r.Records != 1 || r.Causes[redelivery.ByLeave] != 1 || r.Causes[redelivery.ByGateway] != 1 || r.Causes[redelivery.ByWork] != 1 || len(r.Unexplained) != 1 {
		t.Errorf("%s\n%s", r.String(), strings.Join(r.Unexplained, "\n"))
	}
	table := r.String()
	for _, want := range []string{"4 redeliveries of 1 records, 1 of them unexplained", "1  " + string(redelivery.ByLeave)} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in %s", want, table)
		}
	}
	for _, want := range []string{"partition 3 offset 7", "nobody had", "delivery 1 to ann", "delivery 3 to bob in life 2 by n1", "delivery 5 to bob"} {
		if !strings.Contains(r.Unexplained[0], want) {
			t.Errorf("%q is not in the story: %s", want, r.Unexplained[0])
		}
	}
}

// A leader reads the progress again where an acknowledgement of somebody who is gone was under
// way as the leading coordinator died; only on that partition.
func TestALeaderMayHaveToReadTheProgressAgain(t *testing.T) {
	for partition, want := range map[int]int{3: 1, 4: 0} {
		his := settled(given(ann, 1, 600), 700, 0, false)
		his.Record, his.Heard = redelivery.Record{Partition: partition, Offset: 1}, time.Time{}
		h := redelivery.History{
			Session: 2 * time.Second, Deliveries: []redelivery.Delivery{his, given(bob, 1, 500), given(bob, 2, 1800)},
			Faults: []redelivery.Fault{ofNode("n2", true, span(710, 3000)), ofLife(redelivery.MemberKilled, ann, span(720, 730))},
		}
		if r := h.Judge(); r.Causes[redelivery.ByReread] != want || len(r.Unexplained) != 1-want {
			t.Errorf("partition %d: %s", partition, r.String())
		}
	}
}

func TestALeaderChangedBetweenWhatNodesSawLastAndFirst(t *testing.T) {
	var l redelivery.Leaders
	l.See("n1", 3, 1, span(0, 10))
	l.See("n2", 3, 1, span(0, 10))
	l.See("n1", 4, 1, span(0, 10))
	l.See("n3", 3, 1, span(0, 10))
	l.Lose("n3")
	l.See("n2", 3, 1, span(100, 110))
	l.See("n1", 3, 2, span(200, 210)) // n1 saw the old one last at 0, n2 at 100
	l.See("n1", 4, 1, span(200, 210))
	l.See("n2", 3, 1, span(300, 310))
	l.See("n2", 3, 2, span(400, 410))
	l.See("n3", 3, 2, span(900, 910)) // it is back
	got := l.Changes()
	if len(got) != 1 || got[0].Kind != redelivery.LeaderChanged || got[0].Partition != 3 || got[0].Span != span(0, 210) {
		t.Errorf("%+v", got)
	}
}
