package worlds

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

var limitsTable = flag.Bool("limits", false, "measure all numbers of accounts at the published limits, and print a table")

// The figures that the pump keeps at the published limits, of either side alone.
const (
	limitsUsed      = 0.98  // of the summed limits
	limitsThrottled = 0.001 // of all requests
	// Where unknown clients use three tenths of an account.
	limitsLeftUsed      = 0.90
	limitsLeftThrottled = 0.02
	// Of all accounts' limits, while one of ten is dark; as above ten seconds later.
	limitsDarkUsed = 0.88
)

// limitsRows is what was measured, for people.
var limitsRows struct {
	mu   sync.Mutex
	rows []string
}

func limitsRow(t *testing.T, w *limitsWorld, what string, put, got limitsRate) {
	side := func(r limitsRate) string {
		return fmt.Sprintf("%.0f | %.1f %% | %.3f %%", r.rate, 100*r.part, 100*r.throttled)
	}
	row := fmt.Sprintf("| %3d | %2d | %.0f | %s | %s | %s |", w.accounts, w.queues, w.limit(), what, side(put), side(got))
	t.Log(row)
	limitsRows.mu.Lock()
	defer limitsRows.mu.Unlock()
	limitsRows.rows = append(limitsRows.rows, row)
}

// settle is until a process has joined, has its share of the limits and is at full speed.
const limitsSettle = 4 * time.Second

// Virtual time at published limits: uniform keys reach the summed limits of any number of accounts,
// on either side, with hardly a refusal.
func TestLimitsAreReachedByAnyNumberOfAccounts(t *testing.T) {
	proof.Only(t)
	small := []limitsOf{{1, 1, 0, 0, 0}, {1, 1, limitFar, 0, 0}, {3, 1, 0, 0, 0}, {1, 10, 0, 0.2, 0}}
	if *limitsTable {
		small = []limitsOf{
			{1, 1, 0, 0, 0},
			{2, 1, 0, 0, 0},
			{5, 1, 0, 0, 0},
			{10, 1, 0, 0, 0},
			{20, 1, 0, 0, 0},
			{50, 1, 0, 0, 0},
			{100, 1, 0, 0, 0},
			{1, 10, 0, 0, 0},
			{2, 10, 0, 0, 0},
			{5, 10, 0, 0, 0},
			// A tenth of the limits: one process has 1,024 puts under way. Of 16,384 segments some queues
			// have 7 and some 6, which are used to 93.6 % when the others are at their limit.
			{250, 10, time.Millisecond, 0.1, 14976},
			{1, 1, limitFar, 0, 0},
			{5, 1, limitFar, 0, 0},
			{1, 10, limitFar, 0, 0},
		}
	}
	for _, of := range small {
		t.Run(fmt.Sprintf("%d accounts of %d queues, %v", of.accounts, of.queues, of.latency), func(t *testing.T) {
			inLimits(t, of, func(w *limitsWorld) {
				var put, got limitsRate
				const measure = 5 * time.Second
				w.distribute(func(gets func() int64) {
					time.Sleep(limitsSettle)
					put = w.over(measure, gets)
				})
				w.process(func(gets func() int64) {
					time.Sleep(limitsSettle)
					got = w.over(measure, gets)
				})
				for side, r := range map[string]limitsRate{"put": put, "got and deleted": got} {
					if r.part < limitsUsed || r.throttled >= limitsThrottled {
						t.Errorf("%s: %v", side, r)
					}
				}
				what := ""
				switch {
				case of.latency == limitFar:
					what = "answers take 50 ms"
				case of.part != 0:
					what = fmt.Sprintf("%.0f %% of the limits, %d segments", 100*of.part, of.segments)
				}
				limitsRow(t, w, what, put, got)
			})
		})
	}
}

// With unknown clients eating three tenths of one account's limit, or of one
// queue's, what they leave is used, and little is refused.
func TestLimitsWithUnknownClientsWhatTheyLeaveIsUsed(t *testing.T) {
	proof.Only(t)
	// A tenth of the limits is cut in coarse steps. A single one takes a tenth of 20 s, so the test
	// measures for longer.
	small, length := []limitsOf{{1, 1, 0, 0.2, 0}, {4, 1, 0, 0.1, 0}, {1, 10, 0, 0.1, 0}}, time.Minute
	if *limitsTable {
		small, length = []limitsOf{{1, 1, 0, 0, 0}, {1, 10, 0, 0, 0}, {10, 1, 0, 0, 0}}, 20*time.Second
	}
	for _, of := range small {
		t.Run(fmt.Sprintf("%d accounts of %d queues", of.accounts, of.queues), func(t *testing.T) {
			inLimits(t, of, func(w *limitsWorld) {
				first := w.sim.Accounts()[0]
				measured := func(gets func() int64) (r limitsRate) {
					time.Sleep(limitsSettle)
					ctx, end := context.WithCancel(context.Background())
					defer end()
					eaten, queues := 0.3*limitQueue*w.part, []string{"work-00"}
					if w.queues > 1 { // other queues of the same account
						eaten, queues = 0.3*limitAccount*w.part, []string{"other-0", "other-1", "other-2", "other-3"}
					}
					ate := w.eat(ctx, first, eaten, queues...)
					time.Sleep(10 * time.Second) // until others help with what finds no room
					r = w.over(length, gets)
					r.part = r.rate / (w.limit() - ate())
					return r
				}
				var put, got limitsRate
				w.distribute(func(gets func() int64) { put = measured(gets) })
				w.process(func(gets func() int64) { got = measured(gets) })
				for side, r := range map[string]limitsRate{"put": put, "got and deleted": got} {
					if r.part < limitsLeftUsed || r.throttled >= limitsLeftThrottled {
						t.Errorf("%s: %.1f %% of what is left, %.2f %% throttled", side, 100*r.part, 100*r.throttled)
					}
				}
				limitsRow(t, w, "30 % of one eaten", put, got)
			})
		})
	}
}

// One account of ten is dark for a minute. The others go on at their limits, it is at its own soon
// after, and nothing is lost.
func TestLimitsWithADarkAccountTheOthersGoOn(t *testing.T) {
	proof.Only(t)
	of, kinds := limitsOf{10, 1, 0, 0.05, 0}, []string{"hangs"}
	if *limitsTable {
		of.part, kinds = 1, []string{"refuses", "hangs"}
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inLimits(t, of, func(w *limitsWorld) {
				w.tasks = map[string]bool{}
				darken := w.sim.Blackout
				if kind == "hangs" {
					darken = w.sim.Hang
				}
				measured := func(side, account string, gets func() int64) (during, after limitsRate) {
					time.Sleep(limitsSettle)
					darken(account, true)
					during = w.over(time.Minute, gets)
					darken(account, false)
					time.Sleep(10 * time.Second)
					after = w.over(10*time.Second, gets)
					if during.part < limitsDarkUsed {
						t.Errorf("%s, while it is dark: %v", side, during)
					}
					if after.part < limitsUsed || after.throttled >= limitsThrottled {
						t.Errorf("%s, ten seconds later: %v", side, after)
					}
					return during, after
				}
				// The first is the control account, which is another matter. On both sides it is
				// the same, because less is in the queue of one that was dark.
				dark := w.sim.Accounts()[1]
				var put, got, putAfter, gotAfter limitsRate
				w.distribute(func(gets func() int64) { put, putAfter = measured("put", dark, gets) })
				w.process(func(gets func() int64) {
					got, gotAfter = measured("got and deleted", dark, gets)
					w.drained(gets)
				})
				lost := 0
				for _, handled := range w.tasks {
					if !handled {
						lost++
					}
				}
				if lost > 0 || len(w.tasks) == 0 {
					t.Errorf("%d of %d tasks were lost", lost, len(w.tasks))
				}
				limitsRow(t, w, "one dark for a minute ("+kind+")", put, got)
				limitsRow(t, w, "from ten seconds after that", putAfter, gotAfter)
			})
		})
	}
}

// drained waits until nothing more is got, for longer than a lease.
func (w *limitsWorld) drained(gets func() int64) {
	for last := int64(-1); last != gets(); {
		last = gets()
		time.Sleep(2 * mostLease)
	}
}

// TestLimitsTable prints what the tests before it measured; it comes last in its file.
func TestLimitsTable(t *testing.T) {
	if !*limitsTable {
		t.Skip("there is no -limits")
	}
	fmt.Print(`| accounts | queues each | limits, messages/s | what happens | put/s | of the limits | throttled | got and deleted/s | of the limits | throttled |
|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|
`, strings.Join(slices.Clone(limitsRows.rows), "\n"), "\n")
}

// limitsSharedUsed of the limits are used by four processors that share them, each with queues of
// its own: the floors of the three that are strangers in a queue are 3/64 of it.
const limitsSharedUsed = 0.94

// Processes that share the limits use nearly all of them without a refusal: the processors of a
// backlog among themselves, and then beside a distributor that puts. In the tests beside this one a
// process is alone, so that they say nothing of shares. The limits are a quarter of the published
// ones: at a tenth of them 4 % of requests are refused beside a distributor, and a third is used.
func TestLimitsAreReachedByProcessesThatShareThem(t *testing.T) {
	proof.Only(t)
	all := []limitsOf{{1, 4, 0, 0.25, 0}}
	if *limitsTable {
		all = append(all, limitsOf{4, 1, 0, 0.25, 0})
	}
	for _, of := range all {
		t.Run(fmt.Sprintf("%d accounts of %d queues", of.accounts, of.queues), func(t *testing.T) {
			inLimits(t, of, func(w *limitsWorld) {
				w.distribute(func(func() int64) { time.Sleep(20 * time.Second) })
				w.processors(4, func(gets func() int64) {
					time.Sleep(10 * time.Second)
					got := w.over(10*time.Second, gets)
					var both limitsRate
					w.distribute(func(func() int64) {
						time.Sleep(10 * time.Second)
						both = w.over(20*time.Second, gets)
					})
					for side, r := range map[string]limitsRate{"got and deleted": got, "and put": both} {
						t.Logf("4 processors, %s: %v", side, r)
						if r.part < limitsSharedUsed || r.throttled >= limitsThrottled {
							t.Errorf("%s: %v", side, r)
						}
					}
				})
			})
		})
	}
}

// processors runs so many for as long as during takes.
func (w *limitsWorld) processors(n int, during func(got func() int64)) {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var all []*processor.Processor
	nothing := pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil })
	for i := range n {
		p, err := processor.New(w.config(fmt.Sprintf("p%02d", i)), nothing, processor.Options{})
		must(w.t, err)
		all = append(all, p)
		wg.Go(func() {
			if _, err := p.Run(ctx); err != nil {
				w.t.Error(err)
			}
		})
	}
	during(func() (n int64) {
		for _, p := range all {
			n += p.State().Done.Envelopes
		}
		return n
	})
	stop()
	wg.Wait()
}
