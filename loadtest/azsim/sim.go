package azsim

import (
	"cmp"
	"crypto/sha512"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Config says what a Sim simulates. The zero value is one account named
// "devstoreaccount1" at the published limits with no latency.
type Config struct {
	// Accounts are the storage accounts that exist. Others answer 404.
	Accounts []Account

	// Limits are enforced as 503 ServerBusy. The zero value is
	// PublishedLimits; NoLimits turns them off.
	Limits Limits

	// Seed decides message ids, jitter and every fault that is left to chance:
	// the same seed and the same requests give the same answers.
	Seed uint64

	// Latency is the time from sending a request to having its answer, half of it before the
	// operation acts and half after. Each half gets up to half more by the seed in single
	// nanoseconds, so that no two requests tie. 0: none. SetLatency changes it.
	Latency time.Duration

	// Ordered makes everything in virtual time a function of the seed (P9, docs/protocols.md):
	// requests of one instant, on their way there and back, go on one after another, a nanosecond
	// apart, in an order that the seed decides. Each waits for up to 2 us more, which is exact only in
	// a bubble of virtual time.
	Ordered bool

	// BeingDeleted is how long the name of a deleted queue, table or container stays taken (409
	// QueueBeingDeleted, TableBeingDeleted, ContainerBeingDeleted). 0: 30 s, the least that Azure's
	// documentation names. Negative: not at all.
	BeingDeleted time.Duration

	// PopReceiptMismatch answers a well-formed but superseded pop receipt with 400
	// PopReceiptMismatch, as Azurite does, instead of Azure's 404 MessageNotFound.
	PopReceiptMismatch bool

	// CountPartitions has PartitionLoads count the entities of every partition.
	CountPartitions bool

	// Tables are rare behaviours of the Table service.
	Tables TableOptions

	// Bearer judges the token of a request with "Authorization: Bearer" at the server's time; an error
	// becomes a 401 with a challenge that lets a client fetch another token. nil accepts every token.
	Bearer func(token string, now time.Time) error

	// Public lets Listen take addresses other than loopback.
	Public bool

	// TLS has Listen serve https with its certificates. nil: http.
	TLS *tls.Config

	// Log gets one debug record for each request. nil: no log.
	Log *slog.Logger
}

// Account is one storage account.
type Account struct {
	Name string // 3 to 24 lower-case letters and digits
	Key  string // base64; "" derives a key from the name, the same in every Sim
}

// Sim is a set of simulated storage accounts. All methods may be called at any time by any number
// of goroutines. It runs no goroutine of its own and reads time only from package time, so that it
// works inside a testing/synctest bubble and needs no closing.
type Sim struct {
	config   Config
	accounts map[string]*account // fixed after New
	names    []string            // sorted
	latency  atomic.Pointer[Latency]
	offset   atomic.Int64  // server clock minus time.Now, nanoseconds
	requests atomic.Uint64 // for request ids
	tally    tally
	order    order
	faults   faults
	stats    counters
	loads    loads
}

// New makes a simulator. It panics on a configuration that can never work (an account named twice,
// a bad name, a key that is not base64, invalid limits): those are mistakes in the calling program.
func New(c Config) *Sim {
	if len(c.Accounts) == 0 {
		c.Accounts = []Account{{Name: "devstoreaccount1"}}
	}
	c.BeingDeleted = cmp.Or(c.BeingDeleted, 30*time.Second)
	s := &Sim{config: c, accounts: make(map[string]*account, len(c.Accounts))}
	s.SetLatency(Latency{Queue: c.Latency, Table: c.Latency})
	for _, ac := range c.Accounts {
		if s.accounts[ac.Name] != nil {
			panic(fmt.Sprintf("azsim: account %q is configured twice", ac.Name))
		}
		s.accounts[ac.Name] = s.newAccount(ac)
		s.names = append(s.names, ac.Name)
	}
	slices.Sort(s.names)
	if err := s.SetLimits(c.Limits); err != nil {
		panic("azsim: " + err.Error())
	}
	return s
}

func (s *Sim) newAccount(c Account) *account {
	if !validAccountName(c.Name) {
		panic(fmt.Sprintf("azsim: account name %q: want 3 to 24 lower-case letters and digits", c.Name))
	}
	key := derivedKey(c.Name)
	if c.Key != "" {
		var err error
		if key, err = base64.StdEncoding.DecodeString(c.Key); err != nil {
			panic(fmt.Sprintf("azsim: the key of account %q is not base64", c.Name))
		}
	}
	a := &account{
		name:            c.Name,
		seed:            drawMix(s.config.Seed, drawHash(c.Name)),
		beingDeleted:    max(s.config.BeingDeleted, 0),
		sim:             s,
		queueProperties: defaultProperties(),
		tableProperties: defaultProperties(),
	}
	a.mac.Store(&macPool{key: key})
	a.empty()
	return a
}

// Reset takes all queues, tables and containers out of an account, as if they had never been.
// Requests under way may still act on what is gone. It does nothing for an account that does not
// exist.
func (s *Sim) Reset(account string) {
	if a := s.accounts[account]; a != nil {
		a.empty()
	}
}

func (a *account) empty() {
	tables := newTableStore(a.name, a.beingDeleted, a.sim.config.Tables)
	a.stores.Store(&stores{newQueueStore(a), tables, newBlobStore(a)})
}

func validAccountName(name string) bool {
	return len(name) >= 3 && len(name) <= 24 && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
}

// derivedKey is the key of an account that was given none: 64 bytes like a real key, the same for
// the same name, so that a written configuration outlives the process.
func derivedKey(name string) []byte {
	k := sha512.Sum512([]byte("queuepump azsim account key\x00" + name))
	return k[:]
}

// Accounts returns the names of the accounts, sorted.
func (s *Sim) Accounts() []string { return slices.Clone(s.names) }

// Key returns the base64 key of an account, "" if the account does not exist.
func (s *Sim) Key(account string) string {
	if a := s.accounts[account]; a != nil {
		return base64.StdEncoding.EncodeToString(a.mac.Load().key)
	}
	return ""
}

// RollKey gives an account another key and returns it; the one before is refused at once.
func (s *Sim) RollKey(account string) string {
	if a := s.accounts[account]; a != nil {
		a.mac.Store(&macPool{key: derivedKey(s.Key(account))})
	}
	return s.Key(account)
}

// ConnectionString returns the connection string of an account for clients that use Transport: the
// names are Azure's own, so they reach nothing but the simulator. "" if the account does not exist.
func (s *Sim) ConnectionString(account string) string {
	if key := s.Key(account); key != "" {
		return "DefaultEndpointsProtocol=https;AccountName=" + account + ";AccountKey=" + key +
			";EndpointSuffix=core.windows.net"
	}
	return ""
}

// Depth is how many messages a queue, which must be there, has that may be taken now, and in all.
func (s *Sim) Depth(account, queue string) (visible, all int) {
	q := s.accounts[account].stores.Load().queues.(*queueStore).find(queue, s.now())
	defer q.mu.Unlock()
	return len(q.messages.visible(s.now().UnixNano(), q.messages.len())), q.messages.len()
}

// SetClockOffset sets how far the servers' clock is ahead of package time's (behind, if negative).
// It affects Date headers, timestamps, visibility and expiry, and the judgement of dates and SAS.
func (s *Sim) SetClockOffset(d time.Duration) { s.offset.Store(int64(d)) }

// now is the servers' clock: wall time only, so that an offset that jumps
// shows in every difference, as it would on a real server.
func (s *Sim) now() time.Time {
	return time.Now().Add(time.Duration(s.offset.Load())).Round(0).UTC()
}
