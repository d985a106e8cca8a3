package processor_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// host is the one host of many accounts: as with the driver's own transport, 320 requests to it are
// under way at most, and further ones wait within their time.
type host struct {
	*azsim.Transport
	conns *semaphore.Weighted
}

func (h host) Do(req *http.Request) (*http.Response, error) {
	if err := h.conns.Acquire(req.Context(), 1); err != nil {
		return nil, err
	}
	defer h.conns.Release(1)
	return h.Transport.Do(req)
}

// A third of all accounts stand behind one host. While it hangs, with messages of it in hand, the
// others' tasks go on as before, and few lines say so. Afterwards all comes back, and nothing is done
// twice.
func TestAHostThatHangsHindersNoOther(t *testing.T) {
	// A get that hangs keeps its room from others for a quarter of a second, and each queue has one:
	// 200 queues cost a tenth of the first minute.
	for behind, percent := range map[int]int{2: 95, 50: 85} {
		if behind > 10 && proof.Less(t) {
			continue
		}
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			testworld.In(t, testworld.Once, 3*behind, 4, func(s *azsim.Config) {
				for i := range s.Accounts {
					s.Accounts[i].Name = fmt.Sprint([]string{"near", "near", "past"}[i%3], i)
				}
			}, func(t *testing.T, w *testworld.World) { hostHangs(t, w, percent) })
		})
	}
}

func hostHangs(t *testing.T, w *testworld.World, percent int) {
	cfg := w.Config("p", 4)
	one := host{w.Sim.Transport().As("past"), semaphore.NewWeighted(320)}
	for i, a := range cfg.Accounts {
		if name := a.Storage.Name(); strings.HasPrefix(name, "past") {
			st, err := azure.Open(azure.Options{ConnectionString: w.Sim.ConnectionString(name), Transport: one})
			must(t, err)
			cfg.Accounts[i].Storage = st
		}
	}
	const handlers, each = 256, 3 * time.Second
	h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, each) }}
	tasks, homes := 0, map[string]uint32{} // of each queue one segment
	for _, s := range w.EverySegment() {
		account, queue := w.Home(s)
		homes[account+queue] = s
	}
	for tasks < 9000 {
		tasks += w.PutHome(slices.Collect(maps.Values(homes)), 5)
	}
	proc, err := processor.New(cfg, h, processor.Options{Concurrency: handlers})
	must(t, err)
	p := testworld.Start(t, proc)
	for h.Deliveries() < 2*handlers {
		time.Sleep(time.Second)
	}
	fault := w.Fault(azsim.Rule{Instance: "past", Fault: azsim.HangBefore})
	before := h.Deliveries()
	time.Sleep(45 * time.Second)
	took, can := h.Deliveries()-before, handlers*int(45*time.Second/each)
	if took < can*percent/100 {
		t.Errorf("%d of the %d tasks that %d handlers can do were begun", took, can, handlers)
	}
	time.Sleep(time.Minute)
	if n := w.Logged("queue does not answer"); n < 1 || n > 12 {
		t.Errorf("%d warnings", n)
	}
	fault.Remove()
	w.Within(5*time.Minute, "all are handled", func() bool { return h.Tasks() == tasks })
	time.Sleep(3 * time.Minute) // what comes again
	p.End()
	h.Expect(t, tasks, tasks)
	w.ExpectEmpty()
}
