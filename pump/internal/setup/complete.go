package setup

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/bits"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

const maxQueues = 100

// validWorkload leaves room for "-poison" in the 63 characters of a queue name,
// and follows the service's own rule for them.
var validWorkload = regexp.MustCompile(`^[a-z](-?[a-z0-9])+$`)

// Config is a configuration that was checked and completed.
type Config struct {
	pump.Config
	ControlGiven bool            // Control was not left out
	AnyQueues    map[string]bool // accounts by name whose Queues was left out
	Sim          sim.Config
}

// Complete checks the configuration and fills in what is not set. The
// result shares nothing with c that the caller may still change.
func Complete(given pump.Config) (Config, error) {
	c := Config{Config: given, Sim: sim.Of(&given)}
	if len(c.Workload) < 3 || len(c.Workload) > 40 || !validWorkload.MatchString(c.Workload) {
		return c, pump.Invalid("workload", logs.Quoted(c.Workload)+" is not a workload name",
			"use 3 to 40 of a-z, 0-9 and single dashes, beginning with a letter")
	}
	c, err := withAccounts(c)
	if err != nil {
		return c, err
	}
	if err := checkSize(c); err != nil {
		return c, err
	}
	switch c.Delivery {
	case "":
		c.Delivery = pump.AtLeastOnce
	case pump.AtLeastOnce:
	case pump.Once:
		if c.Segments == pump.Shared {
			return c, pump.Invalid("delivery", "once needs segments with owners, and segments is 0",
				"leave segments out, or use at-least-once")
		}
	default:
		return c, pump.Invalid("delivery", logs.Quoted(string(c.Delivery))+" is not a delivery mode",
			"use at-least-once or once, or leave it out for at-least-once")
	}
	if err := checkForeign(&c.Config); err != nil {
		return c, err
	}
	c.Instance = cmp.Or(c.Instance, Instance())
	if err := cluster.CheckInstance(c.Instance); err != nil {
		return c, &pump.ConfigError{
			Field: "instance", Problem: logs.Quoted(c.Instance) + " is not an instance's name",
			Fix: "use 1 to 200 of letters, digits and _ . ~ -, another name in " +
				"each process, or leave it out",
			Err: err,
		}
	}
	if c.Sample < 0 || c.Sample > 0 && c.Sample < time.Second {
		return c, OutOfRange("sample", c.Sample, "use 1s or more, or leave it out for no samples")
	}
	if err := checkRetention(&c.Retention); err != nil {
		return c, err
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return withBudget(c)
}

// withAccounts completes and checks the accounts, and which of them has the tables.
func withAccounts(c Config) (Config, error) {
	if len(c.Accounts) == 0 {
		return c, pump.Invalid("accounts", "no account is given", "name at least one storage account")
	}
	accounts := make([]pump.Account, len(c.Accounts))
	seen := map[string]int{}
	guessed := map[string]bool{}
	queues := defaultQueues(len(c.Accounts), c.Segments)
	for i, a := range c.Accounts {
		left := a.Queues == 0
		a, err := accountWithDefaults(a, fmt.Sprintf("accounts[%d]", i), queues)
		if err != nil {
			return c, err
		}
		if j, dup := seen[a.Name]; dup {
			return c, pump.Invalid(fmt.Sprintf("accounts[%d]", i),
				fmt.Sprintf("is account %q, which accounts[%d] is already", a.Name, j),
				"remove one, or give them different names if they are different accounts")
		}
		seen[a.Name] = i
		accounts[i] = a
		if left {
			guessed[a.Name] = true
		}
	}
	c.Accounts, c.AnyQueues = accounts, guessed
	if err := sameAccounts(accounts); err != nil {
		return c, err
	}
	if c.ControlGiven = c.Control != ""; !c.ControlGiven {
		c.Control = accounts[0].Name
	}
	if _, ok := seen[c.Control]; !ok {
		return c, pump.Invalid("control",
			"account "+logs.Quoted(c.Control)+" is not among the accounts",
			"name one of the accounts listed")
	}
	return c, nil
}

// withBudget completes and checks what may be spent, of requests and of money.
func withBudget(c Config) (_ Config, err error) {
	if c.Prices, err = priceList(c.Prices); err != nil {
		return c, err
	}
	c.Budget, err = Budget(c.Budget)
	if c.Budget.CostPerDay > 0 {
		Default(&c.Sample, time.Minute) // the sum of all is needed
	}
	return c, err
}

// defaultQueues is how many queues an account has if the configuration does not say.
func defaultQueues(accounts, segments int) int {
	if segments <= 0 {
		segments = 4096 // the most there are unless configured
	}
	if accounts <= 128 && accounts*pump.DefaultQueues <= segments {
		return pump.DefaultQueues
	}
	return min(max(segments/max(accounts, 1)/4, 1), pump.DefaultQueues)
}

// checkSize refuses an impossible number of segments, and more queues than segments: some queues
// would not be a home.
func checkSize(c Config) error {
	queues, foreign := 0, 0
	for _, a := range c.Accounts {
		queues += a.Queues
		foreign += len(a.Foreign)
	}
	s := c.Segments
	switch {
	case s == 0 || s == pump.Shared:
		s = shardmap.DefaultSegments(queues)
	case !shardmap.CanBeSegments(s):
		return pump.Invalid("segments", fmt.Sprintf("%d is not a possible number of segments", s),
			fmt.Sprintf("use a multiple of 64 up to %d, or leave it out for %d",
				shardmap.MaxSegments, shardmap.DefaultSegments(queues)))
	}
	switch {
	case queues+foreign > shardmap.MaxShards:
		return pump.Invalid("accounts",
			fmt.Sprintf("they have %d queues in all, and a workload has at most %d",
				queues+foreign, shardmap.MaxShards),
			fmt.Sprintf("use up to %d queues of each (queues:), or make several workloads",
				max(shardmap.MaxShards/len(c.Accounts), 1)))
	case queues > s:
		return pump.Invalid("segments", fmt.Sprintf("%d segments are fewer than the accounts' %d "+
			"queues, of which some would be the home of no segment", s, queues),
			fmt.Sprintf("use %d segments or more, or fewer queues of each account; for a workload that "+
				"exists already leave segments and queues out", 1<<bits.Len(uint(queues-1))))
	}
	return nil
}

// sameAccounts refuses one account under two names: each of its queues would be two, and its
// limits would be counted twice.
func sameAccounts(accounts []pump.Account) error {
	seen := map[string]int{}
	for i, a := range accounts {
		at, ok := storage.As[interface{ Place() string }](a.Storage)
		if !ok {
			continue
		}
		if j, dup := seen[at.Place()]; dup {
			return pump.Invalid(fmt.Sprintf("accounts[%d]", i),
				fmt.Sprintf("is the same storage account as accounts[%d], under another name (%q and %q)",
					j, a.Name, accounts[j].Name),
				"remove one of them")
		}
		seen[at.Place()] = i
	}
	return nil
}

func accountWithDefaults(a pump.Account, field string, queues int) (pump.Account, error) {
	if a.Storage == nil {
		st, err := azure.Open(azure.Options{
			Name: a.Name, ConnectionString: a.ConnectionString, Endpoint: a.Endpoint,
			TableEndpoint: a.TableEndpoint, BlobEndpoint: a.BlobEndpoint, Credential: a.Credential,
			AllowHTTP: a.AllowHTTP, ServiceVersion: a.ServiceVersion,
		})
		if err != nil {
			e := &pump.ConfigError{Field: field, Problem: err.Error(), Err: err}
			if w, ok := errors.AsType[*azure.OptionError](err); ok {
				e.Field, e.Problem, e.Fix = field+"."+w.Field, w.Problem, w.Fix
			}
			return a, e
		}
		a.Storage = st
	}
	a.Name = cmp.Or(a.Name, a.Storage.Name())
	a.Queues = cmp.Or(a.Queues, queues)
	if a.Queues < 1 || a.Queues > maxQueues {
		fix := fmt.Sprintf("use 1 to %d, or leave it out for %d", maxQueues, queues)
		return a, OutOfRange(field+".queues", a.Queues, fix)
	}
	a.Weight = cmp.Or(a.Weight, 1)
	if !(a.Weight >= 0.01 && a.Weight <= 100) { // so written that NaN fails too
		return a, OutOfRange(field+".weight", a.Weight, "use 0.01 to 100, or leave it out for 1")
	}
	return a, nil
}

// Shards lists the queues of the configured accounts as the shard map's first version.
func Shards(c pump.Config) []shardmap.Shard {
	var out []shardmap.Shard
	for _, a := range c.Accounts {
		for i := range a.Queues {
			out = append(out, shardmap.Shard{
				Account: a.Name, Queue: fmt.Sprintf("%s-%02d", c.Workload, i),
				Weight: a.Weight / float64(a.Queues), State: shardmap.Active,
			})
		}
		for _, queue := range a.Foreign {
			out = append(out, shardmap.Shard{Account: a.Name, Queue: queue, State: shardmap.Foreign})
		}
	}
	return out
}

// Instance makes a name that no other process has. It has a random part, because process ids come
// again and host names are cloned with their machines.
func Instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, host)
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%.64s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// NeedOnce refuses what only the ledger can answer.
func NeedOnce(delivery, field, what string) error {
	if delivery == string(pump.Once) {
		return nil
	}
	return pump.Invalid(field,
		fmt.Sprintf("%s needs delivery mode %s; in %s no process records which tasks are done",
			what, pump.Once, pump.AtLeastOnce),
		fmt.Sprintf("make another workload with delivery: %s, or see how many messages are left with: "+
			"distributor status", pump.Once))
}

const defaultRetained = 7 * 24 * time.Hour

// OutOfRange is the error of a setting that is too small or too large; fix says what it may be.
func OutOfRange(field string, value any, fix string) *pump.ConfigError {
	return pump.Invalid(field, fmt.Sprintf("%v is out of range", value), fix)
}

// Default gives a field that is zero a value.
func Default[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Budget completes and checks a budget. The error is a [*pump.ConfigError].
func Budget(b pump.Budget) (pump.Budget, error) {
	b.Account = cmp.Or(b.Account, 20_000)
	b.Queue = cmp.Or(b.Queue, 2_000)
	b.GetCostsMessages = cmp.Or(b.GetCostsMessages, new(true))
	if c := b.CostPerDay; !(c >= 0 && c <= 1e9) { // so written that NaN fails too
		return b,
			OutOfRange("budget.costPerDay", c, "use what a day may cost, or leave it out for no cap")
	}
	for _, f := range []struct {
		name string
		rate float64
	}{{"budget.account", b.Account}, {"budget.queue", b.Queue}} {
		if !(f.rate >= 1 && f.rate <= 1e9) {
			return b, OutOfRange(f.name, f.rate, "use 1 to 1e9 messages a second")
		}
	}
	return b, nil
}

// priceList completes and checks a list of prices: what is not given is as published.
func priceList(p pump.Prices) (pump.Prices, error) {
	if problem, fix, mixed := p.Mixed(); mixed {
		return p, pump.Invalid("prices.currency", problem, fix)
	}
	p = p.OrPublished()
	for _, f := range []struct {
		name  string
		price float64
	}{{"prices.queue", p.Queue}, {"prices.table", p.Table}} {
		if !(f.price > 0 && f.price <= 1e4) { // so written that NaN fails too
			return p, OutOfRange(f.name, f.price,
				"use what 10,000 requests cost, up to 10000, or leave it out for the published price")
		}
	}
	if n := len(p.Currency); n > 12 || len(p.Source) > 200 || len(p.Date) > 20 {
		return p, pump.Invalid("prices", "has a text that is too long",
			"use up to 12 characters for the currency, 20 for the date and 200 for the source")
	}
	return p, nil
}

// CheckMaxRate is for either half of the pump.
func CheckMaxRate(rate float64) error {
	if rate == 0 || rate >= 0.001 && rate <= 1e9 && !math.IsNaN(rate) {
		return nil
	}
	return OutOfRange("max-rate", rate,
		"use 0.001 to 1e9 tasks a second, or leave it out for no limit")
}

// Retry completes and checks a retry policy. The error is a [*pump.ConfigError].
func Retry(p pump.RetryPolicy) (pump.RetryPolicy, error) {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, 8)
	p.Max = cmp.Or(p.Max, max(10*time.Minute, p.Base))
	p.MaxBusy = cmp.Or(p.MaxBusy, 24*time.Hour)
	switch {
	case p.Base < 0 || p.Base > storage.MaxVisibility:
		return p, OutOfRange("retry.base", p.Base,
			"use up to 168h, or leave it out for one that follows how long tasks take")
	case p.Max < p.Base || p.Max > storage.MaxVisibility:
		return p, OutOfRange("retry.max", p.Max, "use at least retry.base and at most 168h")
	case p.MaxAge < 0:
		return p, pump.Invalid("retry.maxAge", p.MaxAge.String()+" is negative", "use 0 for no limit")
	}
	return p, nil
}

// validQueue is the service's own rule for the name of a queue, with a length from 3 to 63.
var validQueue = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])+$`)

// checkForeign checks the settings for other programs' messages, and fills in missing ones.
func checkForeign(c *pump.Config) error {
	Default(&c.ForeignEncoding, jsonline.ForeignAuto)
	if !slices.Contains(jsonline.ForeignEncodings, c.ForeignEncoding) {
		return pump.Invalid("foreign.encoding", logs.Quoted(c.ForeignEncoding)+" is not an encoding",
			"use "+strings.Join(jsonline.ForeignEncodings, ", ")+", or leave it out for auto")
	}
	own := regexp.MustCompile("^" + c.Workload + "-([0-9]{2}|poison)$")
	for i := range c.Accounts {
		a := &c.Accounts[i]
		a.Foreign = slices.Clone(a.Foreign)
		for j, name := range a.Foreign {
			problem, fix := "", ""
			switch {
			case len(name) < 3 || len(name) > 63 || !validQueue.MatchString(name):
				problem = logs.Quoted(name) + " is not a queue's name"
				fix = "use 3 to 63 of a-z, 0-9 and single dashes, neither first nor last"
			case own.MatchString(name):
				problem = fmt.Sprintf("%q is a queue of workload %q itself", name, c.Workload)
				fix = "leave it out: processors read it"
			case slices.Contains(a.Foreign[:j], name):
				problem, fix = fmt.Sprintf("%q is there twice", name), "remove one"
			default:
				continue
			}
			return pump.Invalid(fmt.Sprintf("accounts[%d].foreignQueues", i), problem, fix)
		}
	}
	return nil
}
