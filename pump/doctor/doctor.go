package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/storage"
)

// How bad a finding is.
const (
	Error   = "error"   // work is lost, stands still or will
	Warning = "warning" // work goes on, slower or with less room than it could
)

// The checks, by the names that stand in [Finding].Check. They are stable.
const (
	CheckConfiguration = "configuration"      // pump.yaml is wrong, or not as what is pinned
	CheckWorkload      = "workload"           // it is not there, is being deleted, or is there twice
	CheckAccount       = "account"            // it does not answer, or does not exist
	CheckUnconfigured  = "account-missing"    // the workload uses it, the configuration has it not
	CheckUnused        = "account-unused"     // the configuration has it, the workload does not use it
	CheckCredentials   = "credentials"        // an account refuses everything, or will soon
	CheckRights        = "rights"             // an account refuses something that is needed
	CheckClock         = "clock"              // this machine's clock against the accounts'
	CheckDNS           = "dns"                // a name does not resolve
	CheckEndpoint      = "private-endpoint"   // a name resolves to another network than it should
	CheckQueue         = "queue-missing"      // a queue of the map is not there
	CheckUnmapped      = "unmapped-messages"  // messages in a queue of no map
	CheckNudges        = "nudge-port"         // an admin port cannot be reached
	CheckLimits        = "limits"             // budgets are cut because the service throttles
	CheckProcessors    = "processors"         // more of them than queues, or none
	CheckSilent        = "silent-process"     // dead, or cut off from the control account
	CheckSegments      = "orphan-segments"    // no live process owns them
	CheckQuarantine    = "quarantine-growing" // tasks are being given up
	CheckLedger        = "ledger-bound"       // runs take half of a ledger or more
	CheckFormats       = "mixed-formats"      // processes read different formats
	CheckRows          = "damaged-row"        // a row of the cluster cannot be read
	CheckDisk          = "disk-space"         // of --out
	CheckPaused        = "paused"             // an operator has paused the workload
	CheckHandlersFail  = "handlers-fail"      // of late as many tasks failed as were done
	CheckHandlersStuck = "handlers-stuck"     // handlers have not returned for long
	CheckNotNow        = "not-now"            // what the handlers use says "not now"
	CheckSettings      = "settings"           // processes do not have the workload's settings in force
	CheckDayCost       = "day-cost"           // work is held back to keep to a day's cap
)

// Finding is one thing that is wrong.
type Finding struct {
	Check    string `json:"check"`    // a Check constant
	Severity string `json:"severity"` // Error or Warning
	// Subject is the account, queue, process or path that it is about; empty: the workload.
	Subject string `json:"subject"`
	Problem string `json:"problem"`
	// Fix is the command that mends it or shows where to mend it, with an explanation if needed.
	Fix string `json:"fix"`
}

// Report is what was found. Its JSON names are stable; lists are never null.
type Report struct {
	Workload string `json:"workload"`
	// Findings are the worst first, and then by check and subject.
	Findings []Finding `json:"findings"`
	// Accounts are those of the configuration, by name.
	Accounts []Account `json:"accounts"`
	// Processes is how many live members the workload has, as far as that is known.
	Processes int     `json:"processes"`
	Seconds   float64 `json:"seconds"`
}

// Failed reports whether a finding is an error.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Error })
}

// Account is what was learned of an account.
type Account struct {
	Name string `json:"name"`
	// Clock is how far this machine's clock is ahead of the account's, in seconds; null: not known.
	Clock *float64 `json:"clockSeconds"`
	Hosts []Host   `json:"hosts"`
	// Removed counts what an interrupted doctor had left: queues and rows.
	Removed int `json:"leftoversRemoved"`
}

// Host is a name of an account's service and where it is.
type Host struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}

// Options say how to look. The zero value will do.
type Options struct {
	// Timeout bounds the whole. Default 10 s. Less than 5 s leaves no time for two looks.
	Timeout time.Duration
	// Between is the time from the first look to the second. Default 5.5 s, a beat and what it
	// takes to be stored.
	Between time.Duration
	// Out is a path whose disk should have room, such as that of `processor run --out`; empty: none.
	Out string
	// Config is the path of the configuration, for the commands that mend. Default pump.yaml.
	Config string
	// Results has blobs tried, as for processor.Options.Results; they are tried too if rows lead to
	// results.
	Results bool
	// Locate tells where in the configuration a [pump.ConfigError] has its cause. It may be nil.
	Locate func(err error) error

	// The fields below replace this machine in tests: its name, its resolver, its requests to admin
	// ports, and its file systems.

	Host     string
	Resolve  func(ctx context.Context, host string) (Resolved, error)
	Get      func(ctx context.Context, address, path string, here bool) ([]byte, error)
	FreeDisk func(folder string) (free, size uint64, err error)
}

// Resolved is what a name resolves to.
type Resolved struct {
	Canonical string // the name at the end of its aliases; empty: not known
	Addresses []netip.Addr
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Between = cmp.Or(o.Between, 5500*time.Millisecond)
	o.Config = cmp.Or(o.Config, "pump.yaml")
	o.Host = cmp.Or(o.Host, nudging.HostName())
	if o.Resolve == nil {
		o.Resolve = resolve
	}
	if o.Get == nil {
		o.Get = nudging.NewClient().Get
	}
	if o.FreeDisk == nil {
		o.FreeDisk = freeDisk
	}
	return o
}

// Check makes all checks. It takes o.Timeout at most, also while nothing answers. It always gives a
// report, also if the configuration cannot be used.
func Check(ctx context.Context, cfg pump.Config, o Options) *Report {
	o = o.withDefaults()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c := &checkup{
		o:      o,
		began:  began,
		report: &Report{Workload: cfg.Workload, Findings: []Finding{}, Accounts: []Account{}},
	}
	defer func() { c.report.Seconds = time.Since(began).Round(time.Millisecond).Seconds() }()
	if o.Out != "" {
		c.disk(o.Out)
	}
	of, err := setup.Reach(cfg)
	if err != nil {
		c.wrong(err)
		return c.done()
	}
	c.cfg, c.queues = of.Cfg, of.Queues
	c.keeps(ctx)
	c.report.Accounts = make([]Account, len(c.cfg.Accounts))
	c.patients = make([]patient, len(c.cfg.Accounts))
	var wg sync.WaitGroup
	for i := range c.cfg.Accounts {
		c.patients[i] = patient{c: c, of: c.cfg.Accounts[i], facts: &c.report.Accounts[i]}
		*c.patients[i].facts = Account{Name: c.cfg.Accounts[i].Name, Hosts: []Host{}}
		wg.Go(func() { c.patients[i].examine(ctx) })
	}
	c.fleet(ctx)
	wg.Wait()
	c.clocks()
	c.patientsSay()
	c.controlSays()
	slices.SortFunc(c.report.Accounts,
		func(a, b Account) int { return strings.Compare(a.Name, b.Name) })
	return c.done()
}

// Wrong is the report on a configuration that cannot be read for these reasons: nothing else can be
// looked at.
func Wrong(reasons []error, o Options) *Report {
	c := &checkup{o: o.withDefaults(), report: &Report{Findings: []Finding{}, Accounts: []Account{}}}
	for _, err := range reasons {
		c.wrong(err)
	}
	if o.Out != "" {
		c.disk(o.Out)
	}
	return c.done()
}

// keeps finds the containers in which the workload keeps blobs.
func (c *checkup) keeps(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keepsTimeout)
	defer cancel()
	found, _ := row.MustFind(ctx, c.queues.Control, storage.Query{
		Partition: results.Partition(c.cfg.Workload), Select: []string{row.FormatProperty},
	}, 2)
	if used, _ := bodies.Used(ctx, c.queues.Control, c.cfg.Workload); used {
		c.boxes, found = []string{bodies.Container(c.cfg.Workload)}, found[min(1, len(found)):]
	}
	if c.o.Results || len(found) > 0 {
		c.boxes = append(c.boxes, results.Container(c.cfg.Workload))
	}
}

// checkup is one Check.
type checkup struct {
	cfg      setup.Config
	o        Options
	began    time.Time
	queues   *queues.Set
	patients []patient
	unused   []string // accounts of the configuration that the workload does not use
	boxes    []string // containers that the workload keeps blobs in
	unread   error    // why the workload's rows could not be read, if not for a finding

	mu     sync.Mutex // guards the findings
	report *Report
}

// find notes a finding. A text that was typed, or stands in the configuration, may be a secret
// in the wrong place.
func (c *checkup) find(check, severity, subject, mend, problem string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := Finding{Check: check, Severity: severity, Subject: logs.Cleaned(subject)}
	f.Problem, f.Fix = logs.Cleaned(fmt.Sprintf(problem, args...)), logs.Cleaned(mend)
	c.report.Findings = append(c.report.Findings, f)
}

// wrong is the finding that a configuration cannot be used.
func (c *checkup) wrong(err error) {
	fix := "edit " + c.o.Config
	if ce, ok := errors.AsType[*pump.ConfigError](err); ok {
		fix += ": " + ce.Fix
		err = errors.New(ce.Field + ": " + ce.Problem)
		if c.o.Locate != nil {
			err = c.o.Locate(pump.Invalid(ce.Field, ce.Problem, ""))
		}
	}
	c.find(CheckConfiguration, Error, c.o.Config, fix, "%v", err)
}

// controlSays tells that the workload's rows could not be read, unless it was told why.
func (c *checkup) controlSays() {
	told := func(f Finding) bool {
		return f.Severity == Error && (f.Subject == c.cfg.Control || f.Check == CheckClock)
	}
	if c.unread != nil && !slices.ContainsFunc(c.report.Findings, told) {
		c.find(CheckWorkload, Error, "", c.command("distributor status"),
			"nothing is known of the workload: %v", c.unread)
	}
}

// command is a command with the configuration.
func (c *checkup) command(words string, args ...any) string {
	return fmt.Sprintf(words, args...) + " --config " + c.o.Config
}

func (c *checkup) done() *Report {
	slices.SortFunc(c.report.Findings, func(a, b Finding) int {
		return cmp.Or(
			strings.Compare(a.Severity, b.Severity), // "error" is before "warning"
			strings.Compare(a.Check, b.Check),
			strings.Compare(a.Subject, b.Subject),
			strings.Compare(a.Problem, b.Problem),
		)
	})
	return c.report
}

// resolve asks the machine's resolver.
func resolve(ctx context.Context, host string) (r Resolved, err error) {
	r.Addresses, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return r, err
	}
	// Some resolvers cannot tell.
	if name, err := net.DefaultResolver.LookupCNAME(ctx, host); err == nil {
		r.Canonical = strings.TrimSuffix(name, ".")
	}
	return r, nil
}
