package rpc

import (
	"fmt"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// BenchmarkNewsOfAJoin is what a join costs each node that watches: the whole group goes to it,
// whose owners have changed.
func BenchmarkNewsOfAJoin(b *testing.B) {
	for _, n := range []int{3, 100} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			g := &cluster.Group{ID: ident.GroupID{1}, Topic: ident.TopicID{2}, Name: "billing", Modified: 2, Settings: cluster.GroupSettings{Mode: cluster.Exclusive}}
			for i := range n {
				id := fmt.Sprintf("%036d", i)
				g.Members = append(g.Members, cluster.Member{ID: id, Epoch: ident.MemberEpoch(1000 + i), Node: ident.NodeID{3}})
				g.Owners = append(g.Owners, cluster.Owner{Partition: ident.Index(i), Member: id, Epoch: ident.Assignment(1000 + i), Released: true})
			}
			news := &cluster.Delta{From: 1, To: 2, Groups: []*cluster.Group{g}}
			size := 0
			for b.Loop() {
				d, err := document(news)
				if err != nil {
					b.Fatal(err)
				}
				size = len(d.Json)
				var got cluster.Delta
				if err := openDocument(d, &got); err != nil || len(got.Groups) != 1 {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
