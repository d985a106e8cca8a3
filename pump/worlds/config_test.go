package worlds

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
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
	must(t, err)
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
	if _, err := setup.Complete(mine); err != nil {
		t.Fatal(err)
	}
	if mine.Accounts[0].Queues != 0 || mine.Accounts[0].Storage != nil {
		t.Errorf("%+v", mine.Accounts[0])
	}
}

func TestTheShardsOfAConfigurationMakeAMap(t *testing.T) {
	c, err := setup.Complete(twoAccounts())
	must(t, err)
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
	if _, err := shardmap.New(shardmap.DefaultSegments(len(shards)), shards); err != nil {
		t.Error(err)
	}
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
	if _, err := processor.New(twoAccounts(), nil, processor.Options{Discard: true}); err != nil {
		t.Error(err)
	}
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
