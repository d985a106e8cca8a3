package pump

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/bits"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/queuepump/queuepump/internal/shown"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

// Config says which accounts a workload lives in. It is the same for its
// distributors and its processors; the zero value of every optional field works.
type Config struct {
	// Workload names the set of queues and control rows: 3 to 40 of a-z, 0-9
	// and single dashes, beginning with a letter and ending with no dash,
	// because queue names are made of it.
	Workload string
	// Accounts are the storage accounts to stripe over, at least one.
	Accounts []Account
	// Control names the account whose table holds the workload's rows. Default: the first. A
	// workload whose rows are in another account is refused, and not made a second time.
	Control string
	// Segments is the number of segments, pinned when the workload is created
	// (P6.1): a power of two from 64 to 16,384, at least as many as queues; 0 for 32 a queue
	// within 64 to 4,096; or [Shared].
	Segments int
	// Delivery is a property of the workload, pinned when it is created. Default [AtLeastOnce].
	Delivery Delivery
	// Retention is for how long rows of runs are kept that are done with, and what is in quarantine of them
	// can be redriven as their tasks: at least a minute, by the server's clock. Default 7 days. A copy of a task that
	// turns up later is quarantined.
	Retention time.Duration
	// Instance is this process's unique name in logs, rows and quarantined
	// messages; see [cluster.CheckInstance]. Default: host name, process id and a random part.
	Instance string
	// Admin is where other processes reach this one's admin port, host:port; it is
	// published in the process's row. Empty: nowhere, so nobody can nudge it (P8.2).
	Admin string
	// Nudge carries a hint to another process. Default: an HTTP request to its
	// admin port. It may fail silently and must return when ctx ends.
	Nudge func(ctx context.Context, n Nudge) error
	// Budget bounds the requests of all processes of the workload together, who share
	// it by demand. Default: the published limits.
	Budget Budget
	// Log receives what an operator needs to know. Default: nothing.
	Log *slog.Logger
	// Hooks observes the engine; see [Hooks].
	Hooks Hooks

	seeding      backoff.Seeding // of a simulation
	controlGiven bool            // Control was not left out
}

// Shared as Config.Segments means that no segment has an owner: any processor
// takes any task. Tasks are still placed by segment.
const Shared = -1

// Delivery is a workload's delivery mode.
type Delivery string

// The delivery modes (P3.8).
const (
	// AtLeastOnce delivers each task once or, after a failure, more often.
	AtLeastOnce Delivery = workload.DeliverAtLeastOnce
	// Once records the completion of each task exactly once in a ledger (P3): a copy
	// of a task that is done is recognised and not handled. A handler that was interrupted
	// before its task was recorded runs again, so an effect outside must still bear repetition; an effect
	// on a reducer's state happens exactly once.
	Once Delivery = workload.DeliverOnce
)

// Account is one storage account and how to reach it: a connection string (with
// an account key or a SAS), or an endpoint (with a SAS in it, or with a token credential).
type Account struct {
	// Name is used in the shard map, logs and metrics. Default: the account's
	// own name, taken from the connection string or the endpoint.
	Name string
	// ConnectionString as the Azure portal shows it.
	ConnectionString string
	// Endpoint of the queue service, for example https://NAME.queue.core.windows.net.
	Endpoint string
	// TableEndpoint is only needed when it does not follow from Endpoint by
	// ".queue." becoming ".table.".
	TableEndpoint string
	// Credential goes with Endpoint. Default, when the endpoint has no SAS:
	// azidentity's DefaultAzureCredential.
	Credential azcore.TokenCredential
	// Queues is how many queues of the account to use, 1 to 100. Default: [DefaultQueues], or
	// fewer where there are more than 128 accounts.
	Queues int
	// Weight is the account's share of the work relative to the others. Default 1.
	Weight float64
	// ServiceVersion is the version of the storage services that requests are written
	// for, a date such as 2019-07-07. Default: the SDK's. Sovereign clouds and Azure
	// Stack may know only older ones, and answer 400 InvalidHeaderValue to others.
	ServiceVersion string
	// AllowHTTP permits plain http to a host that is not loopback.
	AllowHTTP bool
	// Storage replaces all of the above but Queues and Weight: a ready driver,
	// for tests and for other transports.
	Storage storage.Account

	anyQueues bool // Queues was left out
}

// DefaultQueues is how many queues of an account are used unless configured, by up to 128 accounts; of
// more accounts there are as many as leave each queue four of 4,096 segments, or of as many as are configured:
// queues cost nothing, one gives at most 2,000 messages a second and an account
// 20,000, and many instances sharing one queue are about ten times slower than
// one instance alone (P7).
const DefaultQueues = 8

const maxQueues = 100

// validWorkload leaves room for "-poison" in the 63 characters of a queue name,
// and follows the service's own rule for them.
var validWorkload = regexp.MustCompile(`^[a-z](-?[a-z0-9])+$`)

// withDefaults checks the configuration and fills in what is not set. The
// result shares nothing with c that the caller may still change.
func (c Config) withDefaults() (Config, error) {
	if len(c.Workload) < 3 || len(c.Workload) > 40 || !validWorkload.MatchString(c.Workload) {
		return c, &ConfigError{Field: "workload", Problem: shown.Quoted(c.Workload) + " is not a workload name", Fix: "use 3 to 40 of a-z, 0-9 and single dashes, beginning with a letter"}
	}
	if len(c.Accounts) == 0 {
		return c, &ConfigError{Field: "accounts", Problem: "no account is given", Fix: "name at least one storage account"}
	}
	accounts := make([]Account, len(c.Accounts))
	seen := map[string]int{}
	queues := defaultQueues(len(c.Accounts), c.Segments)
	for i, a := range c.Accounts {
		a, err := a.withDefaults(fmt.Sprintf("accounts[%d]", i), queues)
		if err != nil {
			return c, err
		}
		if j, dup := seen[a.Name]; dup {
			return c, &ConfigError{Field: fmt.Sprintf("accounts[%d]", i), Problem: fmt.Sprintf("is account %q, which accounts[%d] is already", a.Name, j), Fix: "remove one, or give them different names if they are different accounts"}
		}
		seen[a.Name] = i
		accounts[i] = a
	}
	c.Accounts = accounts
	if err := sameAccounts(accounts); err != nil {
		return c, err
	}
	if c.controlGiven = c.controlGiven || c.Control != ""; c.Control == "" {
		c.Control = accounts[0].Name
	}
	if _, ok := seen[c.Control]; !ok {
		return c, &ConfigError{Field: "control", Problem: "account " + shown.Quoted(c.Control) + " is not among the accounts", Fix: "name one of the accounts listed"}
	}
	if err := c.checkSize(); err != nil {
		return c, err
	}
	switch c.Delivery {
	case "":
		c.Delivery = AtLeastOnce
	case AtLeastOnce:
	case Once:
		if c.Segments == Shared {
			return c, &ConfigError{Field: "delivery", Problem: "once needs segments with owners, and segments is 0", Fix: "leave segments out, or use at-least-once"}
		}
	default:
		return c, &ConfigError{Field: "delivery", Problem: shown.Quoted(string(c.Delivery)) + " is not a delivery mode", Fix: "use at-least-once or once, or leave it out for at-least-once"}
	}
	if c.Instance == "" {
		c.Instance = newInstance()
	}
	if err := cluster.CheckInstance(c.Instance); err != nil {
		return c, &ConfigError{Field: "instance", Problem: shown.Quoted(c.Instance) + " is not an instance's name", Fix: "use 1 to 200 of letters, digits and _ . ~ -, another name in each process, or leave it out", Err: err}
	}
	setDefault(&c.Retention, defaultRetained)
	if c.Retention < time.Minute {
		return c, &ConfigError{Field: "retention", Problem: fmt.Sprintf("%v is out of range", c.Retention), Fix: "use 1m or more, or leave it out for 168h"}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	c.Budget, err = c.Budget.withDefaults()
	return c, err
}

// defaultQueues is how many queues an account has for which the configuration does not say it.
func defaultQueues(accounts, segments int) int {
	if segments <= 0 {
		segments = 4096 // the most there are unless configured
	}
	if accounts <= 128 && accounts*DefaultQueues <= segments {
		return DefaultQueues
	}
	return min(max(segments/max(accounts, 1)/4, 1), DefaultQueues)
}

// checkSize refuses a number of segments that cannot be, and more queues than segments: some would
// be the home of none.
func (c Config) checkSize() error {
	queues := 0
	for _, a := range c.Accounts {
		queues += a.Queues
	}
	s := c.Segments
	switch {
	case s == 0 || s == Shared:
		s = shardmap.DefaultSegments(queues)
	case s < 64 || s > shardmap.MaxSegments || s&(s-1) != 0:
		return &ConfigError{Field: "segments", Problem: fmt.Sprintf("%d is not a possible number of segments", s), Fix: fmt.Sprintf("use a power of two from 64 to %d, or leave it out for %d", shardmap.MaxSegments, shardmap.DefaultSegments(queues))}
	}
	switch {
	case queues > shardmap.MaxShards:
		return &ConfigError{
			Field: "accounts", Problem: fmt.Sprintf("they have %d queues in all, and a workload has at most %d", queues, shardmap.MaxShards),
			Fix: fmt.Sprintf("use up to %d queues of each (queues:), or make several workloads", max(shardmap.MaxShards/len(c.Accounts), 1)),
		}
	case queues > s:
		return &ConfigError{
			Field: "segments", Problem: fmt.Sprintf("%d segments are fewer than the accounts' %d queues, of which some would be the home of no segment", s, queues),
			Fix: fmt.Sprintf("use %d segments or more, or fewer queues of each account; for a workload that exists already leave segments and queues out", 1<<bits.Len(uint(queues-1))),
		}
	}
	return nil
}

// sameAccounts refuses one account under two names: each of its queues would be two, and its
// limits would be counted twice.
func sameAccounts(accounts []Account) error {
	seen := map[string]int{}
	for i, a := range accounts {
		at, ok := a.Storage.(interface{ Place() string })
		if !ok {
			continue
		}
		if j, dup := seen[at.Place()]; dup {
			return &ConfigError{
				Field: fmt.Sprintf("accounts[%d]", i), Problem: fmt.Sprintf("is the same storage account as accounts[%d], under another name (%q and %q)", j, a.Name, accounts[j].Name),
				Fix: "remove one of them",
			}
		}
		seen[at.Place()] = i
	}
	return nil
}

func (a Account) withDefaults(field string, queues int) (Account, error) {
	if err := azure.CheckServiceVersion(a.ServiceVersion); err != nil {
		return a, &ConfigError{Field: field + ".serviceVersion", Problem: err.Error(), Fix: "use the newest that the cloud documents, or leave it out", Err: err}
	}
	if a.Storage == nil {
		st, err := azure.Open(azure.Options{
			Name: a.Name, ConnectionString: a.ConnectionString, Endpoint: a.Endpoint,
			TableEndpoint: a.TableEndpoint, Credential: a.Credential, AllowHTTP: a.AllowHTTP, ServiceVersion: a.ServiceVersion,
		})
		if err != nil {
			return a, &ConfigError{Field: field, Problem: err.Error(), Fix: "give a connection string, or an endpoint such as https://NAME.queue.core.windows.net", Err: err}
		}
		a.Storage = st
	}
	if a.Name == "" {
		a.Name = a.Storage.Name()
	}
	if a.Queues == 0 {
		a.anyQueues = true
		a.Queues = queues
	}
	if a.Queues < 1 || a.Queues > maxQueues {
		return a, &ConfigError{Field: field + ".queues", Problem: fmt.Sprintf("%d is out of range", a.Queues), Fix: fmt.Sprintf("use 1 to %d, or leave it out for %d", maxQueues, queues)}
	}
	if a.Weight == 0 {
		a.Weight = 1
	}
	if !(a.Weight >= 0.01 && a.Weight <= 100) { // so written that NaN fails too
		return a, &ConfigError{Field: field + ".weight", Problem: fmt.Sprintf("%v is out of range", a.Weight), Fix: "use 0.01 to 100, or leave it out for 1"}
	}
	return a, nil
}

// shards lists the queues of the configured accounts as the shard map's first version.
func (c Config) shards() []shardmap.Shard {
	var out []shardmap.Shard
	for _, a := range c.Accounts {
		for i := range a.Queues {
			out = append(out, shardmap.Shard{
				Account: a.Name, Queue: fmt.Sprintf("%s-%02d", c.Workload, i),
				Weight: a.Weight / float64(a.Queues), State: shardmap.Active,
			})
		}
	}
	return out
}

// poisonQueue is the queue of each account that its quarantined messages go to.
func poisonQueue(workload string) string { return workload + "-poison" }

// newInstance makes a name that no other process has: the random part, because
// process ids come again and host names are cloned with their machines.
func newInstance() string {
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

const defaultRetained = 7 * 24 * time.Hour

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
