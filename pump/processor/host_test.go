package processor_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
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
	for behind, percent := range map[int]int64{2: 95, 10: 95, 50: 85} {
		if behind > 10 && proof.Less(t) {
			continue
		}
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			many := func(s *azsim.Config) {
				s.Accounts = nil
				for i := range 3 * behind {
					s.Accounts = append(s.Accounts, azsim.Account{Name: fmt.Sprintf("%s%d", []string{"near", "near", "past"}[i%3], i)})
				}
			}
			testworld.In(t, testworld.Once, 3*behind, 4, many, func(t *testing.T, w *testworld.World) {
				hostHangs(t, w, percent)
			})
		})
	}
}

func hostHangs(t *testing.T, w *testworld.World, percent int64) {
	cfg := w.Config("p", 4)
	one := host{w.Sim.Transport().As("p"), semaphore.NewWeighted(320)}
	for i, a := range cfg.Accounts {
		if name := a.Storage.Name(); strings.HasPrefix(name, "past") {
			st, err := azure.Open(azure.Options{ConnectionString: w.Sim.ConnectionString(name), Transport: one})
			must(t, err)
			cfg.Accounts[i].Storage = st
		}
	}
	const handlers, each, envelope, all = 256, 3 * time.Second, 5, 9000
	var done atomic.Int64
	h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
		defer done.Add(1)
		return testworld.Pause(ctx, each)
	}}
	tasks, segmentOf := 0, map[string]uint32{} // of each queue one that it is the home of
	for s := range uint32(w.Segments()) {
		account, queue := w.Home(s)
		segmentOf[account+"/"+queue] = s
	}
	for _, s := range segmentOf {
		account, queue := w.Home(s)
		for range all / envelope / len(segmentOf) {
			w.PutText(account, queue, w.Envelope(s, envelope))
			tasks += envelope
		}
	}
	proc, err := processor.New(cfg, h, processor.Options{Concurrency: handlers})
	must(t, err)
	p := testworld.Start(t, proc)
	for done.Load() < handlers {
		time.Sleep(time.Second)
	}
	var faults []*azsim.Injection
	for _, name := range w.Sim.Accounts() {
		if strings.HasPrefix(name, "past") {
			faults = append(faults, w.Fault(azsim.Rule{Account: name, Fault: azsim.HangBefore}))
		}
	}
	before := done.Load()
	time.Sleep(45 * time.Second)
	took, can := done.Load()-before, int64(handlers*45*time.Second/each)
	if took < can*percent/100 {
		t.Errorf("%d of the %d tasks that %d handlers can do were done", took, can, handlers)
	}
	time.Sleep(time.Minute)
	if n := w.Logged("queue does not answer"); n < 1 || n > 12 {
		t.Errorf("%d warnings", n)
	}
	for _, f := range faults {
		f.Remove()
	}
	for n := 0; n < 300 && h.Tasks() < tasks; n++ {
		time.Sleep(time.Second)
	}
	time.Sleep(3 * time.Minute) // what comes again
	p.Stop()
	must(t, p.Wait())
	h.Expect(t, tasks, tasks)
	proof.Same(t, w.Left(), 0, "messages left")
}
