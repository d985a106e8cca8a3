package status

import (
	"cmp"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/runs"
)

// Status is what can be seen of a workload at one moment, from any machine that has its
// configuration. Everything comes from rows and queues; no process is asked. Its JSON names and the
// order of its lists are stable. Lists are never null; what is not known is null.
type Status struct {
	Workload string `json:"workload"`
	// Time is when it was read, by the control account's clock; LocalClock says that this machine's
	// clock was taken, because the other could not be read.
	Time       time.Time `json:"time"`
	LocalClock bool      `json:"localClock"`
	Delivery   string    `json:"delivery"`
	Segments   int       `json:"segments"`
	// Shared: segments have no owners, any processor takes any task.
	Shared bool `json:"shared"`
	// PausedSince is since when an operator has paused the workload, by the clock of the operator's
	// machine; null: it is not paused. PausedBy names the operator.
	PausedSince *time.Time `json:"pausedSince"`
	PausedBy    string     `json:"pausedBy"`
	// PausedParts are the runs and keys that are paused by themselves; never null.
	PausedParts []PausedPart `json:"pausedParts"`
	// Settings are the values that the workload gives all processes, by name; never null.
	Settings   map[string]string `json:"settings"`
	MapVersion uint64            `json:"mapVersion"`
	// Settled: every segment is held by the instance that the plan says, and no instance of
	// the plan is silent.
	Settled      bool         `json:"settled"`
	Distribution Distribution `json:"distribution"`
	Runs         []Run        `json:"runs"`      // the last started first
	Instances    []Instance   `json:"instances"` // by rank, those without one after, by name
	Accounts     []Account    `json:"accounts"`  // by name
	// Unowned are the segments that no instance owns, or a silent one, ascending.
	Unowned []uint32 `json:"unowned"`
	// Owners has for each segment the index of its live owner in Instances, -1 if it has none; nil:
	// the workload is shared, or not known. Owners serves to draw, and is not in the JSON.
	Owners []int `json:"-"`
	// Spilled is how many segments have messages in another queue than their home.
	Spilled int `json:"spilled"`
	// Ends is what holds back the ends of runs that no distributor continues.
	Ends runs.Ends `json:"ends"`
	// Ledger is what the fullest segment uses of its ledger's bounds. Null in delivery mode
	// at-least-once, and if the ledger could not be read.
	Ledger *pump.LedgerStatus `json:"ledger"`
	Gates  []gates.Status     `json:"gates"` // by name
	// Keys are the keys with a claim, those that run first, then the last started first.
	Keys []Key `json:"keys"`
	// Money is what requests cost.
	Money Money `json:"money"`
	// Problems say, for people, what could not be read and what needs an operator.
	Problems []string `json:"problems"`
	// NotRead are the parts that could not be read. Their fields are as a [Watcher] had read them
	// before. If nothing is known of them, they are empty or null: an empty list in such a part does
	// not say that there is nothing. If an error comes with the status, the status has no part.
	NotRead []PartNotRead `json:"notRead"`
	// Requests is what reading all this has cost.
	Requests int64 `json:"requests"`
}

// Distribution is what the election row says.
type Distribution struct {
	// Phase is "running", "idle", "none" if no distributor was ever elected, or "unknown" if the row
	// could not be read.
	Phase  string `json:"phase"`
	Leader string `json:"leader"` // the process that leads or led last; empty if it left
	Epoch  uint64 `json:"epoch"`
	Run    string `json:"run"` // the run under way or the last one
	// BeatAge is how long ago the leader wrote the row, in seconds.
	BeatAge *float64 `json:"beatAgeSeconds"`
	// Next is when the next distribution is due, by the control account's clock.
	Next *time.Time `json:"next"`
	// Cron is the schedule and its time zone; empty: there is none. Due is the due time of Run.
	Cron string     `json:"cron"`
	Due  *time.Time `json:"due"`
}

// Run is one run.
type Run struct {
	ID       string     `json:"id"`
	Mode     string     `json:"mode"`  // "once", "named", "every", "cron", "client", "posts"
	Name     string     `json:"name"`  // the user's own; empty: it has none
	State    string     `json:"state"` // "open", "sealed", "closed", "broken"
	Instance string     `json:"instance"`
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended"` // when it was sealed or broken
	// Sent is the number of tasks: all of them once the run is sealed; before that the number known so
	// far (AtLeast), null if none is known.
	Sent    *uint64 `json:"sent"`
	AtLeast bool    `json:"sentIsAtLeast"`
	// Exact is how far the run is by the ledger, each task counted once. Null in delivery mode
	// at-least-once, which does not record that, and if the ledger could not be read.
	Exact *pump.RunProgress `json:"exact"`
	// These counts are what its processors say they did, each task as often as it was delivered.
	Handled     uint64 `json:"handled"`
	Failed      uint64 `json:"failed"`
	Retried     uint64 `json:"retried"`
	Quarantined uint64 `json:"quarantined"`
	Duplicates  uint64 `json:"duplicates"`
	Dropped     uint64 `json:"dropped"` // because the run was ended so
	Skipped     uint64 `json:"skipped"` // because their key was begun less than MinInterval ago
	// Results are kept in blobs (distributor results RUN), and ResultBytes are those of their lines.
	Results     uint64 `json:"results"`
	ResultBytes uint64 `json:"resultBytes"`
	// Requests is about how many requests to queues its messages have cost so far, and Cost what that
	// is in the currency of Money: empty gets, beats and looks belong to no run.
	Requests float64 `json:"requests"`
	Cost     float64 `json:"cost"`
	Note     string  `json:"note"` // why it broke
}

// Instance is one process with a row. A process that was killed keeps its row until another one
// evicts it. If no other is left, the row stays until one comes; the process is Silent meanwhile.
type Instance struct {
	Instance string `json:"instance"`
	Role     string `json:"role"` // "processor", "distributor"
	// among the instances that take segments; null for the others
	Rank    *int      `json:"rank"`
	Host    string    `json:"host"`
	Version string    `json:"version"`
	Started time.Time `json:"started"` // by its own clock
	// BeatAge is how long ago its last beat was stored, in seconds.
	BeatAge float64 `json:"beatAgeSeconds"`
	// Silent: its last beat is older than its lease and margin, so it is dead, or cannot reach the
	// control account. All else here is from that beat.
	Silent   bool    `json:"silent"`
	Segments int     `json:"segments"` // held, as it says
	Queues   int     `json:"queues"`   // polled
	Tasks    uint64  `json:"tasks"`    // handled, or sent
	Rate     float64 `json:"tasksPerSecond"`
	// Seconds is how long a task takes in the handler, lately; 0 if that is not known.
	Seconds float64 `json:"secondsPerTask"`
	// Busy is what part of its handlers has been at work lately, about; 0 if that is not known. It
	// helps to find what holds the rate back, and is not in the JSON.
	Busy float64 `json:"-"`
	// LeaseSeconds is how long the messages that it gets now are hidden. If it dies, its tasks are
	// that late. 0: a distributor, or a processor that does not say.
	LeaseSeconds float64 `json:"leaseSeconds"`
	Throttled    uint64  `json:"throttled"`
	// requests a second, by account; empty until it was measured
	Demand   map[string]float64 `json:"demand"`
	Admin    string             `json:"admin"`
	Waiting  string             `json:"waiting"` // the gate it waits at
	Draining bool               `json:"draining"`
	Paused   bool               `json:"paused"` // it starts nothing, and no handler is at work
	Trouble  string             `json:"trouble"`
	// NotNow is how many times its tasks were told "not now" by what its handlers use, since
	// NotNowSince (by its own clock). NotNowError is what the last of those tasks was told. They are
	// 0, null and empty if its tasks are not told so now.
	NotNow      uint64     `json:"notNow"`
	NotNowSince *time.Time `json:"notNowSince"`
	NotNowError string     `json:"notNowError"`
	// KeysOver says which keys it holds back because of perKey.
	KeysOver pump.KeysOver `json:"keysOver"`
	// Failing is set if as many tasks failed as were done, or more. Stuck is set if handlers have not
	// returned for much longer than tasks take. Both are null otherwise. AllStuck: no handler has
	// returned for so long.
	Failing  *Ill `json:"failing"`
	Stuck    *Ill `json:"stuck"`
	AllStuck bool `json:"allStuck"`
	// Begun: it began within the last two beats. It helps to find what holds the rate back, and is
	// not in the JSON.
	Begun bool `json:"-"`
	// TimesSlower is how many times longer it leaves empty queues alone to keep to budget.costPerDay;
	// 0: there is no cap, or the instance does not say. HoldsBack: gets wait as well.
	TimesSlower float64 `json:"timesSlower"`
	HoldsBack   bool    `json:"holdsBack"`
}

// Ill says what is wrong with the handlers of a process.
type Ill struct {
	Count uint64    `json:"count"`
	Since time.Time `json:"since"` // by the process's own clock
	// Error is why the last task failed; empty for handlers that have not returned. Task is that task,
	// or the one that a handler has worked at for longest.
	Error string `json:"error"`
	Task  string `json:"task"`
}

// Account is one storage account.
type Account struct {
	accounts.Use
	// Limit is what may be asked of the account, in messages a second, as this configuration has it.
	// Demand is what all instances together would ask now, without instances that are silent, wait at
	// a gate, or have just come.
	Limit  float64 `json:"limit"`
	Demand float64 `json:"demand"`
	// Throttled counts the throttled requests of the instances that are not silent.
	Throttled uint64 `json:"throttled"`
	Depth
	// Poison is the number of quarantined messages, null if not known.
	Poison *int64 `json:"poison"`
	// Dark is why the account, or one of its queues, could not be read.
	Dark string `json:"dark"`
	// Last is what a process saw in it last, within six hours, if it cannot be read now; null if that
	// is not known, or if nothing samples the queues.
	Last    *LastLook `json:"last"`
	ByQueue []Queue   `json:"byQueue"` // by name
}

// Queue is one queue of an account.
type Queue struct {
	Queue string `json:"queue"`
	Depth
	Dark string `json:"dark"`

	oldest time.Time // by the account's clock
}

// Depth is how much is in a queue, or in all queues of an account. The service counts visible and
// invisible messages together, never too few. A peek shows up to 32 visible ones. If a queue shows
// fewer than 32, Visible and InFlight are as exact as the count. If it shows 32, only bounds are
// known: at least 32 are visible, and at most the rest is in flight. "In flight" is all that is not
// visible: being handled, or put back for later.
type Depth struct {
	Messages int64 `json:"messages"`
	Visible  int64 `json:"visible"`
	InFlight int64 `json:"inFlight"`
	// Bounds: more may be visible than Visible, and fewer in flight than InFlight.
	Bounds bool `json:"bounds"`
	// Oldest is the age in seconds of the oldest visible message among those peeked, null if no
	// message is visible or the age is not known.
	Oldest *float64 `json:"oldestSeconds"`
}

func (d *Depth) add(o Depth) {
	d.Messages += o.Messages
	d.Visible += o.Visible
	d.InFlight += o.InFlight
	d.Bounds = d.Bounds || o.Bounds
	if o.Oldest != nil && (d.Oldest == nil || *o.Oldest > *d.Oldest) {
		d.Oldest = o.Oldest
	}
}

// Key is one key with a claim.
type Key struct {
	Key      string     `json:"key"`
	Base64   bool       `json:"base64"` // the key is not text, and in base64 here
	Task     string     `json:"task"`   // the identity of the task that claimed it last
	Instance string     `json:"instance"`
	Start    time.Time  `json:"start"`
	Stop     *time.Time `json:"stop"`
	Running  bool       `json:"running"`
	Failed   bool       `json:"failed"`
}

// Options bound what [Read] reads. Zero fields take the defaults.
type Options struct {
	Runs int // how many of the last runs; default 5
	Keys int // how many keys with claims; default 100
	// Timeout bounds the whole, and so the wait for a dark account. Default 10 s.
	Timeout time.Duration
}

func (o Options) withDefaults() Options {
	o.Runs = cmp.Or(o.Runs, 5)
	o.Keys = cmp.Or(o.Keys, 100)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	return o
}
