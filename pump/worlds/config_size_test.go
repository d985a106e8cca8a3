package worlds

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// accountsOfQueues is a configuration of so many accounts of so many queues; with 0 it does not say
// how many.
func accountsOfQueues(accounts, queues, segments int) pump.Config {
	c := pump.Config{Workload: "cities", Segments: segments}
	for i := range accounts {
		c.Accounts = append(c.Accounts, pump.Account{ConnectionString: fmt.Sprintf("AccountName=acct%04d;AccountKey=%s;EndpointSuffix=core.windows.net", i, aKey), Queues: queues})
	}
	return c
}

// B6: 250 accounts of the default number of queues were refused.
func TestTheDefaultNumberOfQueuesFollowsTheNumberOfAccounts(t *testing.T) {
	for _, c := range []struct{ accounts, segments, want int }{
		{1, 0, 8},
		{4, 0, 8},
		{8, 64, 8},
		{128, 0, 8},
		{128, 1024, 8},
		{128, 4096, 8},
		{16, 64, 1},
		{129, 0, 7},
		{250, 0, 4},
		{250, 16384, 8},
		{600, 16384, 6},
		{1000, 0, 1},
		{250, pump.Shared, 4},
	} {
		cfg, err := setup.Complete(accountsOfQueues(c.accounts, 0, c.segments))
		if err != nil {
			t.Errorf("%d accounts: %v", c.accounts, err)
			continue
		}
		if got := cfg.Accounts[0].Queues; got != c.want {
			t.Errorf("%d accounts and %d segments: %d queues each, want %d", c.accounts, c.segments, got, c.want)
		}
		s := setup.SpecOf(&cfg)
		if s.Segments == 0 {
			s.Segments = shardmap.DefaultSegments(len(s.Shards))
		}
		if err := shardmap.Check(s.Segments, s.Shards); err != nil {
			t.Errorf("%d accounts: %v", c.accounts, err)
		}
	}
}

func TestMoreQueuesThanSegmentsAreRefusedWithTheReasonAndTheFix(t *testing.T) {
	for _, c := range []struct {
		accounts, queues, segments int
		field, says                string
	}{
		{250, 10, 16384, "", ""},
		{250, 10, 0, "", ""},
		{250, 10, 4096, "", ""},
		{409, 10, 0, "", ""},
		{250, 10, 2048, "segments", "2048 segments are fewer than the accounts' 2500 queues, of which some would be the home of no segment; use 4096 segments or more"},
		{7, 10, 64, "segments", "use 128 segments or more"},
		{410, 10, 16384, "accounts", "they have 4100 queues in all, and a workload has at most 4096; use up to 9 queues of each"},
		{1, 1, 32768, "segments", "use a multiple of 64 up to 16384"},
		{1, 1, 100, "segments", "100 is not a possible number of segments; use a multiple of 64 up to 16384"},
		{250, 10, 14976, "", ""},
	} {
		_, err := setup.Complete(accountsOfQueues(c.accounts, c.queues, c.segments))
		e, ok := errors.AsType[*pump.ConfigError](err)
		if c.field == "" && err != nil || c.field != "" && (!ok || e.Field != c.field || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%d accounts of %d queues, %d segments: %v", c.accounts, c.queues, c.segments, err)
		}
	}
}

func TestAnAccountWithMoreQueuesThanThereAreSegmentsLeftIsNotAdded(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Workload = "town"
		two := w.Cfg
		two.Accounts = two.Accounts[:2]
		f := queues.Open(&two)
		spec := setup.SpecOf(&setup.Config{Config: two})
		spec.Segments = 4
		must(t, errOf(workload.Ensure(t.Context(), f.Control, spec)))
		e := refused(t, second(accounts.Add(t.Context(), w.Operator(), "accountc")), "with it the workload would have 6 queues, but it has 4 segments")
		if !strings.Contains(e.Fix, "use at most 0 queues of it") || w.states() != "a active 2, b active 2, c unused 2" {
			t.Errorf("%v; %s", e, w.states())
		}
		if _, err := w.Queue("accountc", "town-00").Count(t.Context()); err == nil {
			t.Error("its queues were made")
		}
	})
}

// A workload that was made with more or fewer accounts has another number of queues than the
// default is now.
func TestTheDefaultNumberOfQueuesIsNoClaimAboutAWorkloadThatExists(t *testing.T) {
	inWorld(t, 2, 3, nil, func(t *testing.T, w *world) {
		cfg := w.Operator()
		for i := range cfg.Accounts {
			cfg.Accounts[i].Queues = 0
		}
		d, err := distributor.New(cfg, &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
		must(t, err)
		if err := second(d.Run(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
