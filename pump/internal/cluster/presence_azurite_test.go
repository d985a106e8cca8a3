package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// The rows of the cluster on Azurite: another server than the simulator that the
// other tests use, in real time, with short beats, and no judgement of time.
func TestOnAzuriteMembersJoinHandOverLeaveAndAreEvicted(t *testing.T) {
	server := storagetest.StartAzurite(t, "cluster")
	account, err := azure.Open(azure.Options{ConnectionString: server.ConnectionString("cluster")})
	must(t, err)
	table := account.Table(row.TableName)
	// It takes 17 s, most of it beats and leases, and far longer beside others on a slow machine.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	// 1,024 segments are two owner rows.
	w, err := workload.Ensure(ctx, table, workload.Spec{Name: "city", Segments: 1024, Delivery: string(pump.AtLeastOnce), Shards: queuesOf(8)})
	must(t, err)
	join := func(name string) *Presence {
		p, err := Join(ctx, w, Options{
			Instance: name, Role: RoleProcessor, Beat: 500 * time.Millisecond,
			Report: func() Report {
				return Report{Accounts: []string{"cluster"}, Demand: map[string]float64{"cluster": 1.5}}
			},
		})
		must(t, err)
		return p
	}
	until := func(what string, is func(*View) bool) *View {
		for {
			v, err := LoadView(ctx, table, "city")
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if v.Settled() && is(v) {
				return v
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	a := join("a")
	until("alone", func(v *View) bool { return shares(v) == "a:1024" })
	b := join("b")
	v := until("together", func(v *View) bool { return shares(v) == "a:512 b:512" })
	if m := v.Members[v.Index("b")]; m.Demand["cluster"] != 1.5 || m.Accounts[0] != "cluster" || m.Beat.IsZero() {
		t.Errorf("b says %+v", m)
	}
	a.Leave(ctx)
	until("a left", func(v *View) bool { return shares(v) == "b:1024" && len(v.Members) == 1 })

	// b is killed; c observes it for lease and margin and evicts it.
	b.cancel()
	<-b.done
	c := join("c")
	v = until("b is dead", func(v *View) bool { return shares(v) == "c:1024" && v.Index("b") < 0 })
	if v.Owners[0].Epoch < 2 {
		t.Errorf("epoch %d", v.Owners[0].Epoch)
	}
	must(t, c.MarkSpill(ctx, []uint32{1000}, 2))
	if v, err := LoadView(ctx, table, "city"); err != nil || v.Spills == nil || v.Spills[1000] != 1<<2 {
		t.Errorf("marks %v, %v", v.Spills, err)
	}
	// The row is taken away from under it: it joins as another incarnation.
	was := v.Members[v.Index("c")].Incarnation
	must(t, proof.ErrOf(table.Write(ctx, storage.Write{Mode: storage.Remove, Entity: storage.Entity{Partition: "city", Row: "present.c"}})))
	until("c is back", func(v *View) bool { return shares(v) == "c:1024" && v.Members[0].Incarnation != was })
	c.Leave(ctx)
	if v, err := LoadView(ctx, table, "city"); err != nil || len(v.Members) != 0 {
		t.Errorf("%v, members %+v", err, v.Members)
	}
}
