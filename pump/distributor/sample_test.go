package distributor

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// With no processor the backlog is still known: the first processor is started for it.
func TestADistributorSamplesWhileThereIsNoProcessor(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var all []*testworld.Started[*Distributor, Summary]
		for _, name := range []string{"d", "e"} {
			cfg := w.Config(name, 2)
			cfg.Sample = 15 * time.Second
			d, err := New(cfg, &testworld.ListSource{N: 300, Print: "v1"}, Options{Every: time.Hour, Pack: 1})
			proof.Must(t, err)
			all = append(all, testworld.Start(w.T, d))
		}
		time.Sleep(2 * time.Minute)
		b := all[0].Of.State().Backlog
		if b == nil || all[1].Of.State().Backlog != nil {
			t.Fatalf("not the first distributor samples: %+v", b)
		}
		if n := w.In("accounta"); len(b.Accounts) != 1 || b.Accounts[0].Visible != int64(n) || n != 300 || b.Accounts[0].Oldest < 60 || *b.Seconds != 300*3600 {
			t.Errorf("%+v, of %d messages", b, n)
		}
		all[0].End()
		time.Sleep(time.Minute)
		if all[1].Of.State().Backlog == nil {
			t.Error("the other does not sample")
		}
		all[1].End()
	})
}
