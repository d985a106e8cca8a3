package setup_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/shardmap"
)

const (
	aKey  = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
	aConn = "DefaultEndpointsProtocol=https;AccountName=accounta;AccountKey=" + aKey + ";EndpointSuffix=core.windows.net"
	bConn = "DefaultEndpointsProtocol=https;AccountName=accountb;AccountKey=" + aKey + ";EndpointSuffix=core.windows.net"
)

func twoAccounts() pump.Config {
	return pump.Config{Workload: "cities", Accounts: []pump.Account{{ConnectionString: aConn}, {ConnectionString: bConn, Queues: 2, Weight: 3}}}
}

func TestTheZeroValueOfEveryOptionalFieldWorks(t *testing.T) {
	c, err := setup.Complete(twoAccounts())
	proof.Must(t, err)
	if c.Control != "accounta" || c.Delivery != pump.AtLeastOnce || c.Segments != 0 || c.Instance == "" || c.Log == nil {
		t.Errorf("%+v", c)
	}
	if c.Budget.Account != 20_000 || c.Budget.Queue != 2_000 || !*c.Budget.GetCostsMessages {
		t.Errorf("%+v", c.Budget)
	}
	if a := c.Accounts[0]; a.Name != "accounta" || a.Queues != pump.DefaultQueues || a.Weight != 1 || a.Storage == nil {
		t.Errorf("%+v", a)
	}
	if again, err := setup.Complete(c.Config); err != nil || again.Instance != c.Instance {
		t.Errorf("defaults change what has its defaults: %+v, %v", again, err)
	}
}

func TestDefaultsDoNotTouchTheCallersAccounts(t *testing.T) {
	mine := twoAccounts()
	proof.Must(t, proof.ErrOf(setup.Complete(mine)))
	if mine.Accounts[0].Queues != 0 || mine.Accounts[0].Storage != nil {
		t.Errorf("%+v", mine.Accounts[0])
	}
}

func TestTheShardsOfAConfigurationMakeAMap(t *testing.T) {
	c, err := setup.Complete(twoAccounts())
	proof.Must(t, err)
	shards := setup.Shards(c.Config)
	if len(shards) != 10 || shards[0].Queue != "cities-00" || shards[9].Account != "accountb" || shards[9].Queue != "cities-01" {
		t.Errorf("%+v", shards)
	}
	weight := map[string]float64{}
	for _, s := range shards {
		weight[s.Account] += s.Weight
	}
	if weight["accounta"] != 1 || weight["accountb"] != 3 {
		t.Errorf("an account's weight is shared by its queues: %v", weight)
	}
	proof.Must(t, proof.ErrOf(shardmap.New(shardmap.DefaultSegments(len(shards)), shards)))
}

func TestAWrongConfigurationNamesFieldProblemAndFix(t *testing.T) {
	for _, c := range []struct {
		name, field string
		change      func(c *pump.Config)
	}{
		{"no workload", "workload", func(c *pump.Config) { c.Workload = "" }},
		{"too short", "workload", func(c *pump.Config) { c.Workload = "ab" }},
		{"too long", "workload", func(c *pump.Config) { c.Workload = strings.Repeat("a", 41) }},
		{"capitals", "workload", func(c *pump.Config) { c.Workload = "Cities" }},
		{"two dashes", "workload", func(c *pump.Config) { c.Workload = "a--b" }},
		{"a dash at the end", "workload", func(c *pump.Config) { c.Workload = "cities-" }},
		{"a digit first", "workload", func(c *pump.Config) { c.Workload = "1cities" }},
		{"a path", "workload", func(c *pump.Config) { c.Workload = "../cities" }},
		{"no accounts", "accounts", func(c *pump.Config) { c.Accounts = nil }},
		{"twice the same", "accounts[1]", func(c *pump.Config) { c.Accounts[1] = c.Accounts[0] }},
		{"bad connection string", "accounts[1].connectionString", func(c *pump.Config) { c.Accounts[1].ConnectionString = "AccountKey=" + aKey }},
		{"too many queues", "accounts[0].queues", func(c *pump.Config) { c.Accounts[0].Queues = 101 }},
		{"negative queues", "accounts[0].queues", func(c *pump.Config) { c.Accounts[0].Queues = -1 }},
		{"weight", "accounts[1].weight", func(c *pump.Config) { c.Accounts[1].Weight = -2 }},
		{"no weight", "accounts[1].weight", func(c *pump.Config) { c.Accounts[1].Weight = math.NaN() }},
		{"control", "control", func(c *pump.Config) { c.Control = "accountc" }},
		{"segments", "segments", func(c *pump.Config) { c.Segments = 100 }},
		{"few segments", "segments", func(c *pump.Config) { c.Segments = 32 }},
		{"many segments", "segments", func(c *pump.Config) { c.Segments = 32768 }},
		{"an instance that is no row's key", "instance", func(c *pump.Config) { c.Instance = "host/1" }},
		{"an instance's name too long", "instance", func(c *pump.Config) { c.Instance = strings.Repeat("a", 201) }},
		{"delivery", "delivery", func(c *pump.Config) { c.Delivery = "twice" }},
		{"budget", "budget.account", func(c *pump.Config) { c.Budget.Account = -1 }},
		{"queue budget", "budget.queue", func(c *pump.Config) { c.Budget.Queue = math.Inf(1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := twoAccounts()
			c.change(&cfg)
			_, err := setup.Complete(cfg)
			var ce *pump.ConfigError
			if !errors.As(err, &ce) {
				t.Fatalf("%v", err)
			}
			if ce.Field != c.field || ce.Problem == "" || ce.Fix == "" || !strings.HasPrefix(err.Error(), c.field+": ") {
				t.Errorf("%+v", ce)
			}
			if strings.Contains(err.Error(), aKey) {
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
}

func TestWrongProcessorOptionsNameFieldProblemAndFix(t *testing.T) {
	for field, o := range map[string]processor.Options{
		"concurrency":  {Concurrency: -1},
		"visibility":   {Visibility: 1500_000_000},
		"until-idle":   {UntilIdle: -1},
		"max-bytes":    {MaxBytes: 1},
		"max-rate":     {MaxRate: 1, Discard: true},
		"retry.base":   {Retry: pump.RetryPolicy{Base: -1}},
		"retry.max":    {Retry: pump.RetryPolicy{Base: 10, Max: 9}},
		"retry.maxAge": {Retry: pump.RetryPolicy{MaxAge: -1}},
	} {
		_, err := processor.New(twoAccounts(), pump.HandlerFunc(nil), o)
		var ce *pump.ConfigError
		if !errors.As(err, &ce) || ce.Field != field || ce.Problem == "" || ce.Fix == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := processor.New(twoAccounts(), nil, processor.Options{}); err == nil {
		t.Error("no handler, and no error")
	}
	proof.Must(t, proof.ErrOf(processor.New(twoAccounts(), nil, processor.Options{Discard: true})))
}

func TestInstancesHaveNamesOfTheirOwn(t *testing.T) {
	names := map[string]bool{}
	for range 1000 {
		n := setup.Instance()
		if names[n] || len(n) > 128 || strings.ContainsAny(n, " /\\#?") {
			t.Fatalf("%q", n)
		}
		names[n] = true
	}
}

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
		proof.Same(t, cfg.Accounts[0].Queues, c.want,
			c.accounts, "accounts and", c.segments, "segments: … queues each")
		s := setup.SpecOf(&cfg)
		if s.Segments == 0 {
			s.Segments = shardmap.DefaultSegments(len(s.Shards))
		}
		proof.Is(t, shardmap.Check(s.Segments, s.Shards), nil, c.accounts, "accounts")
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

// A workload that was made with more or fewer accounts has another number of queues than the
// default is now.
func TestTheDefaultNumberOfQueuesIsNoClaimAboutAWorkloadThatExists(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 3, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Operator()
		for i := range cfg.Accounts {
			cfg.Accounts[i].Queues = 0
		}
		d, err := distributor.New(cfg, &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
		proof.Must(t, err)
		proof.Must(t, proof.ErrOf(d.Run(t.Context())))
	})
}

// rival makes a second workload of the same name, with its rows in account i.
func rival(w *testworld.World, i int, shards []shardmap.Shard) {
	w.T.Helper()
	spec := workload.Spec{Name: w.Cfg.Workload, Delivery: string(w.Cfg.Delivery), Shards: shards}
	proof.Must(w.T, proof.ErrOf(workload.Ensure(w.T.Context(), w.Cfg.Accounts[i].Storage.Table(row.TableName), spec)))
}

func TestMaxRateOutOfRangeIsAMistakeInTheConfiguration(t *testing.T) {
	for _, rate := range []float64{-1, 1e-9, 1e10} {
		err := setup.CheckMaxRate(rate)
		if _, ok := errors.AsType[*pump.ConfigError](err); !ok {
			t.Errorf("%v: %v", rate, err)
		}
	}
}
