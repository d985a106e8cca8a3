package election

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// A thousand candidates ask one partition for less than half of what it gives: while one of them
// leads, when a distribution is due, which all know to the moment, and when the leader dies.
func TestAThousandCandidatesAskOnePartitionForLittle(t *testing.T) {
	proof.Only(t)
	synctest.Test(t, func(t *testing.T) {
		limits := azsim.PublishedLimits()
		limits.QueryCost = 1000
		sim := azsim.New(azsim.Config{
			Accounts: []azsim.Account{{Name: "north"}}, Seed: 7, Latency: 20 * time.Millisecond, Limits: limits, CountPartitions: true,
		})
		const n = 1000
		var mu sync.Mutex
		terms, leads := 0, ""
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		candidate := func(name string) {
			a, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString("north"), Transport: sim.Transport().As(name)})
			if err != nil {
				t.Error(err)
				return
			}
			e := New(a.Table(row.TableName), "city", Options{Instance: name})
			standFor30s(ctx, t, e, name, func() {
				mu.Lock()
				defer mu.Unlock()
				terms, leads = terms+1, name
			})
		}
		server, _ := azure.Open(azure.Options{ConnectionString: sim.ConnectionString("north"), Transport: sim.Transport().As("setup")})
		must(t, server.Table(row.TableName).Create(t.Context()))
		for i := range n {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Minute / n)
				candidate(fmt.Sprintf("c%04d", i))
			})
		}
		watch := func(what string, d time.Duration) {
			before := sim.PartitionLoads()[0].Entities
			began, most := time.Now(), int64(0)
			for time.Since(began) < d {
				last := sim.PartitionLoads()[0].Entities
				time.Sleep(time.Second)
				most = max(most, sim.PartitionLoads()[0].Entities-last)
			}
			each := float64(sim.PartitionLoads()[0].Entities-before) / time.Since(began).Seconds()
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%s: %.0f entities a second, %d at most; %d terms", what, each, most, terms)
			if most > 1000 {
				t.Errorf("%s: %d entities in a second", what, most)
			}
		}
		time.Sleep(time.Second)
		watch("all come", time.Minute)
		watch("distributions are due", 2*time.Minute)
		for mu.Lock(); leads == ""; mu.Lock() {
			mu.Unlock()
			time.Sleep(time.Second)
		}
		dead := leads
		mu.Unlock()
		sim.Inject(azsim.Rule{Instance: dead, Fault: azsim.FailBefore})
		watch("the leader dies", time.Minute)
		stop()
		all.Wait()
	})
}

// standFor30s stands for election until ctx ends, and leads for 30 s each time that it wins, which
// it says to elected.
func standFor30s(ctx context.Context, t *testing.T, e *Election, name string, elected func()) {
	for ctx.Err() == nil {
		term, wait, _ := e.Try(ctx)
		if term != nil {
			elected()
			wait = 0
			select {
			case <-time.After(30 * time.Second):
				if err := term.Finish(ctx); err != nil {
					t.Logf("%s: %v", name, err)
				}
			case <-term.Context().Done():
			case <-ctx.Done():
				term.Abandon(t.Context())
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}
