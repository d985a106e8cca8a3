package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/shardmap"
)

const (
	// lookTimeout is how long one look may take, so that two looks and the time between them fit into
	// a Check.
	lookTimeout = 4 * time.Second
	// fewThrottles is how many between two looks are normal: a partition moves, or a rate is tried.
	fewThrottles = 10
	// cutBelow is the part of its target below which a rate is cut: while nothing is refused it climbs
	// by 2 % a second and more, so a higher rate is nearly restored.
	cutBelow = 0.9
)

// look is what is seen of the workload at one moment.
type look struct {
	status *status.Status
	view   *cluster.View
	err    error
}

func (c *checkup) look(ctx context.Context) (l look) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var viewErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		l.status, l.err = status.Read(ctx, c.cfg.Config,
			status.Options{Runs: 1, Keys: 1, Timeout: lookTimeout})
	})
	wg.Go(func() { l.view, viewErr = cluster.LoadView(ctx, c.queues.Control, c.cfg.Workload) })
	wg.Wait()
	l.err = cmp.Or(l.err, viewErr)
	return l
}

// fleet looks at the workload and its processes, twice.
func (c *checkup) fleet(ctx context.Context) {
	first := c.look(ctx)
	if first.err != nil {
		c.noWorkload(first.err)
		if errors.Is(first.err, pump.ErrNoWorkload) {
			c.inventory(ctx, nil)
		}
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.inventory(ctx, first.view.Workload.Map) })
	wg.Go(func() { c.pinned(ctx, first.view.Workload) })
	wg.Go(func() { c.ports(ctx, first) })
	if !waits.Wait(ctx, time.Until(c.began.Add(c.o.Between))) {
		wg.Wait()
		c.judge(first)
		return
	}
	second := c.look(ctx)
	wg.Wait()
	if second.err != nil { // it went dark meanwhile
		c.noWorkload(second.err)
		return
	}
	c.judge(second)
	c.grown(first, second)
}

// noWorkload tells why nothing is known of the workload.
func (c *checkup) noWorkload(err error) {
	var ce *pump.ConfigError
	switch {
	case errors.As(err, &ce):
		c.wrong(err)
	case errors.Is(err, workload.ErrDeleting):
		c.find(CheckWorkload, Error, "", c.command("distributor workload delete"), "%v", err)
	case errors.Is(err, pump.ErrNoWorkload):
		c.find(CheckWorkload, Warning, "", c.command("distributor run --input FILE"), "%v", err)
	default:
		c.unread = err // the control account's examination says more
	}
}

// pinned compares the configuration with what the workload is, and looks for a second workload.
func (c *checkup) pinned(ctx context.Context, w *workload.Workload) {
	if all, wrong := setup.SpecOf(&c.cfg).Check(w).(interface{ Unwrap() []error }); wrong {
		for _, err := range all.Unwrap() {
			c.find(CheckConfiguration, Error, c.o.Config, c.command("distributor workload show"), "%v", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	rivals, _ := setup.Rivals(ctx, &c.cfg, w)
	for _, r := range rivals {
		c.find(CheckWorkload, Error, r.Account, c.command("distributor workload show"),
			"account %s has a second workload %q: each takes the other's messages for its own",
			r.Account, c.cfg.Workload)
	}
}

// judge reports what one look shows.
func (c *checkup) judge(l look) {
	s, v := l.status, l.view
	for _, a := range s.Accounts {
		switch {
		case a.State != accounts.Unused && !a.Configured:
			c.find(CheckUnconfigured, Error, a.Name, "add it to "+c.o.Config,
				"the workload uses the account, and %s does not have it", c.o.Config)
		case a.State == accounts.Unused:
			c.unused = append(c.unused, a.Name)
		}
	}
	var silent []string
	live := 0
	for _, i := range s.Instances {
		switch {
		case i.Silent:
			silent = append(silent, i.Instance)
		case i.Rank != nil:
			live++
		}
	}
	c.report.Processes = len(s.Instances) - len(silent)
	if len(silent) > 0 {
		c.find(CheckSilent, Warning, setup.SomeOf(silent, 4), c.command("distributor status"),
			"%d of %d processes are silent, so dead or cut off from the control account",
			len(silent), len(s.Instances))
	}
	c.processors(s, v, live)
	c.handlers(s)
	c.formats(v, silent)
	c.settings(v)
	c.money(s)
	if u := s.Ledger; u != nil && u.Used >= closing.Pressure {
		severity, means := Warning, "runs that no process continues end sooner"
		if u.Used >= 1 {
			severity, means = Error, "tasks of further runs wait until others have ended"
		}
		c.find(CheckLedger, severity, "", c.command("distributor runs list"),
			"segment %d has %d of %d live runs, %d of %d pages and %d of %d bytes of records "+
				"in its ledger: %s", u.Segment, u.Runs, u.RunsMost, u.Pages, u.PagesMost, u.Bytes,
			u.BytesMost, means)
	}
}

// processors tells of too many or too few of them.
func (c *checkup) processors(s *status.Status, v *cluster.View, live int) {
	c.paused(s)
	active := 0
	for _, q := range v.Workload.Map.Shards {
		if q.State == shardmap.Active {
			active++
		}
	}
	atGate := slices.ContainsFunc(s.Instances, func(i status.Instance) bool {
		return !i.Silent && i.Waiting != ""
	})
	var waiting int64
	for _, a := range s.Accounts {
		waiting += a.Messages
	}
	switch {
	case live > active:
		c.find(CheckProcessors, Warning, "", c.command("distributor accounts add NAME"),
			"%d processors are more than the %d queues: they share queues "+
				"and put back each other's messages", live, active)
	case live == 0 && waiting > 0 && !atGate:
		c.find(CheckProcessors, Warning, "", c.command("processor run --exec CMD"),
			"no processor works, and %d messages wait", waiting)
	}
}

// grown tells what a second look shows beside the first.
func (c *checkup) grown(first, second look) {
	seconds := second.status.Time.Sub(first.status.Time).Seconds()
	before := map[string]status.Account{}
	for _, a := range first.status.Accounts {
		before[a.Name] = a
	}
	for _, a := range second.status.Accounts {
		was := before[a.Name]
		if was.Poison != nil && a.Poison != nil && *a.Poison > *was.Poison {
			c.find(CheckQuarantine, Warning, a.Name,
				c.command("distributor quarantine list --since 10m"),
				"%d messages have come into quarantine within %.0f s, which has %d now",
				*a.Poison-*was.Poison, seconds, *a.Poison)
		}
		if a.Throttled >= was.Throttled+fewThrottles {
			c.throttled(a.Name, "%d requests were refused as too many within %.0f s",
				a.Throttled-was.Throttled, seconds)
		}
	}
	c.orphans(first, second)
}

// throttled tells once of each account.
func (c *checkup) throttled(account, problem string, args ...any) {
	c.mu.Lock()
	known := slices.ContainsFunc(c.report.Findings,
		func(f Finding) bool { return f.Check == CheckLimits && f.Subject == account })
	c.mu.Unlock()
	if !known {
		c.find(
			CheckLimits,
			Warning,
			account,
			"lower budget.account and budget.queue in "+c.o.Config+", or find what else uses the account",
			problem,
			args...)
	}
}

// orphans tells of segments that have no live owner in both looks, while processors are there to
// take them. That passes by itself within two leases after a processor comes or dies.
func (c *checkup) orphans(first, second look) {
	s := second.status
	var lost []uint32
	for _, segment := range s.Unowned {
		if slices.Contains(first.status.Unowned, segment) {
			lost = append(lost, segment)
		}
	}
	changing, live := false, 0
	for i := range second.view.Members {
		m := &second.view.Members[i]
		at := slices.IndexFunc(s.Instances,
			func(i status.Instance) bool { return i.Instance == m.Instance })
		if at < 0 {
			continue
		}
		silent := s.Instances[at].Silent
		if !silent && s.Instances[at].Rank != nil {
			live++
		}
		changing = changing || silent || s.Time.Sub(m.Started) < 2*m.Dead
	}
	if len(lost) == 0 || live == 0 {
		return
	}
	severity, means := Error, "nothing has changed for two leases, so no processor takes them"
	if changing {
		severity, means = Warning, "that should pass within two leases after a processor came or died"
	}
	c.find(CheckSegments, severity, "", c.command("distributor status"),
		"%d of %d segments have no live owner, such as %d: %s", len(lost), s.Segments, lost[0],
		means)
}

// inventory compares the queues that exist with those of the map; nil: there is no map.
func (c *checkup) inventory(ctx context.Context, m *shardmap.Map) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	mapped, read := map[string][]string{}, map[string][]string{}
	if m != nil {
		for _, s := range m.Shards {
			if s.State == shardmap.Foreign {
				read[s.Account] = append(read[s.Account], s.Queue)
			} else {
				mapped[s.Account] = append(mapped[s.Account], s.Queue)
			}
		}
	}
	numbered := regexp.MustCompile(`^` + regexp.QuoteMeta(c.cfg.Workload) + `-[0-9]{2}$`)
	var wg sync.WaitGroup
	for _, a := range c.cfg.Accounts {
		wg.Go(func() {
			names, err := a.Storage.Queues(ctx, c.cfg.Workload+"-")
			if err != nil {
				return // the account's examination says why
			}
			for _, queue := range mapped[a.Name] {
				if !slices.Contains(names, queue) {
					c.find(CheckQueue, Error, a.Name+"/"+queue,
						"az storage queue create --account-name "+a.Name+" --name "+queue,
						"the queue of the map is not there: its messages are lost, "+
							"and what is sent to it goes to other queues")
				}
			}
			var g errgroup.Group
			g.SetLimit(queues.AtOnce)
			for _, queue := range read[a.Name] {
				g.Go(func() error { return c.foreignThere(ctx, a, queue) })
			}
			for _, queue := range a.Foreign {
				if m != nil && !slices.Contains(read[a.Name], queue) {
					g.Go(func() error { return c.foreignUnread(ctx, a, queue) })
				}
			}
			for _, queue := range names {
				if numbered.MatchString(queue) && !slices.Contains(mapped[a.Name], queue) {
					g.Go(func() error {
						if n, err := a.Storage.Queue(queue).Count(ctx); err == nil && n > 0 {
							c.unmapped(a.Name, queue, n, len(mapped[a.Name]) > 0)
						}
						return nil
					})
				}
			}
			_ = g.Wait()
		})
	}
	wg.Wait()
}

// foreignThere finds that a queue is missing that other programs should put into.
func (c *checkup) foreignThere(ctx context.Context, a pump.Account, queue string) error {
	if _, err := a.Storage.Queue(queue).Count(ctx); queues.NotThere(err) {
		c.find(CheckQueue, Error, a.Name+"/"+queue,
			"az storage queue create --account-name "+a.Name+" --name "+queue,
			"the foreign queue is not there: nothing can be put into it, and processors make none")
	}
	return nil
}

// foreignUnread finds messages in a foreign queue that the configuration has and the workload does
// not read.
func (c *checkup) foreignUnread(ctx context.Context, a pump.Account, queue string) error {
	if n, err := a.Storage.Queue(queue).Count(ctx); err == nil && n > 0 {
		c.unmapped(a.Name, queue, n, false)
	}
	return nil
}

func (c *checkup) unmapped(account, queue string, messages int64, used bool) {
	mend := c.command("distributor accounts add %s", account)
	if used {
		mend = fmt.Sprintf("make a workload of more queues beside this one, or move them: "+
			"az storage message get --account-name %s --queue-name %s", account, queue)
	}
	c.find(CheckUnmapped, Error, account+"/"+queue, mend,
		"%d messages are in a queue that no map names, so no processor reads them", messages)
}
