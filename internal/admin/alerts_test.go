package admin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/handlers"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/workloads"
)

func alertRules(t *testing.T) string {
	t.Helper()
	file, err := Generate("alerts", GenerateOptions{Version: "v1"})
	must(t, err)
	return file.Text
}

var metricName = regexp.MustCompile(`queuepump_[a-z_]+`)

func metricNames(text string) []string {
	all := metricName.FindAllString(text, -1)
	slices.Sort(all)
	return slices.Compact(all)
}

// requirePromtool skips a test that needs Prometheus' own judgement.
func requirePromtool(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not there: make check-alerts builds it")
	}
}

func TestPromtoolTakesTheRules(t *testing.T) {
	requirePromtool(t)
	for _, o := range []GenerateOptions{{Version: "v1"}, {Version: "v1", Workload: "cities", Name: "cities"}} {
		file, err := Generate("alerts", o)
		must(t, err)
		path := filepath.Join(t.TempDir(), "rules.yaml")
		must(t, os.WriteFile(path, []byte(file.Text), 0o600))
		if out, err := exec.Command("promtool", "check", "rules", path).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// works is a handler that takes a while.
func works(d time.Duration) pump.Handler {
	return pump.HandlerFunc(func(ctx context.Context, _ *pump.Task) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// stands is a handler that does not get on.
var stands = pump.HandlerFunc(func(ctx context.Context, _ *pump.Task) error {
	<-ctx.Done()
	return context.Cause(ctx)
})

// planted is a fault, which is played after five healthy minutes; fires are the alerts that fire in
// the end. A scene of many seconds of a core is long.
type planted struct {
	name     string
	accounts int
	long     bool
	change   func(*pump.Config)
	healthy  func(*scene) // what runs before
	fault    func(*scene)
	lasts    time.Duration
	calm     time.Duration // for so long after the fault none fires
	fires    []string
	only     bool // none but those fires in the end
}

var scenes = []planted{
	{
		name: "half an hour of health", accounts: 2,
		healthy: sendsAndWorks, fault: func(*scene) {}, lasts: 30 * time.Minute,
	},
	{
		name: "the control account hangs", accounts: 1,
		healthy: sendsAndWorks, fault: func(s *scene) { s.sim.Hang("accounta", true) }, lasts: 15 * time.Minute,
		fires: []string{"QueuepumpControlDark", "QueuepumpAccountSilent", "QueuepumpNotSampled", "QueuepumpNotReady"},
	},
	{
		name: "an account refuses the credential", accounts: 2,
		healthy: sendsAndWorks, lasts: 4 * time.Minute, fires: []string{"QueuepumpAccountRefused"},
		fault: func(s *scene) {
			s.sim.Inject(azsim.Rule{Account: "accountb", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		},
	},
	{
		name: "an account answers too many", accounts: 2,
		healthy: sendsAndWorks, lasts: 20 * time.Minute, fires: []string{"QueuepumpThrottled"},
		fault: func(s *scene) {
			s.sim.Inject(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.Answer, Probability: 0.3})
		},
	},
	{
		name: "processors are gone", accounts: 2,
		healthy: sendsAndWorks, lasts: 7 * time.Minute, fires: []string{"QueuepumpNoProcessor", "QueuepumpSegmentsUnowned"},
		fault: func(s *scene) {
			s.processes[0].end()
			s.processes[1].end()
		},
	},
	{
		name: "handlers stand still", accounts: 2,
		healthy: func(s *scene) { s.processor("p", stands, processor.Options{Concurrency: 2, Timeout: -1}) },
		fault: func(s *scene) {
			s.distributor("d", tasksOf(s.t, 2000), distributor.Options{Pack: 1})
		},
		lasts: 40 * time.Minute, fires: []string{"QueuepumpNothingDone", "QueuepumpBacklogOld", "QueuepumpBacklogLong", "QueuepumpHandlersStuck"},
	},
	{
		name: "an operator forgets a pause", accounts: 2, healthy: sendsAndWorks,
		fault: func(s *scene) {
			o := s.of("operator", newMetrics(Options{Workload: "work"}))
			must(s.t, proof.ErrOf(workloads.Pause(s.t.Context(), o, "me", workloads.PauseOptions{})))
		},
		lasts: 65 * time.Minute, calm: 55 * time.Minute, fires: []string{"QueuepumpPaused"}, only: true,
	},
	{
		name: "handlers fail", accounts: 2, healthy: sendsAndWorks,
		fault: func(s *scene) {
			failing := pump.HandlerFunc(func(context.Context, *pump.Task) error { return errors.New("no") })
			s.processes[0].end()
			s.processes[1].end()
			s.processor("x", failing, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 3}})
		},
		lasts: 20 * time.Minute, fires: []string{"QueuepumpHandlersFail", "QueuepumpHandlersAllFail", "QueuepumpQuarantine"},
	},
	{
		name: "handlers only put tasks off", accounts: 2, healthy: sendsAndWorks,
		fault: func(s *scene) {
			later := pump.HandlerFunc(func(context.Context, *pump.Task) error { return pump.RetryAfter(time.Second, nil) })
			s.processes[0].end()
			s.processes[1].end()
			s.processor("x", later, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: -1}})
		},
		lasts: 20 * time.Minute, fires: []string{"QueuepumpHandlersFail"},
	},
	{
		name: "handlers are told not now", accounts: 2, healthy: sendsAndWorks,
		fault: func(s *scene) {
			busy := pump.HandlerFunc(func(context.Context, *pump.Task) error { return pump.Busy(time.Second, nil) })
			s.processes[0].end()
			s.processes[1].end()
			s.processor("x", busy, processor.Options{})
		},
		lasts: 20 * time.Minute, fires: []string{"QueuepumpHandlersFail"},
	},
	{
		name: "the limit is near", accounts: 1, change: func(c *pump.Config) { c.Budget.Account = 10 },
		healthy: func(s *scene) { s.processor("p", works(time.Millisecond), processor.Options{}) },
		fault: func(s *scene) {
			s.distributor("d", tasksOf(s.t, 10_000), distributor.Options{Pack: 1})
		},
		lasts: 20 * time.Minute, fires: []string{"QueuepumpLimitNear"},
	},
	{
		name: "a source has bad lines", accounts: 1, healthy: sendsAndWorks,
		fault: func(s *scene) {
			path := filepath.Join(s.t.TempDir(), "bad")
			must(s.t, os.WriteFile(path, []byte("{\"name\":\"a\"}\nno JSON\n"), 0o600))
			s.processes[2].end()
			s.distributor("e", source.JSONLines(path, "name"), distributor.Options{Every: time.Minute})
		},
		lasts: 10 * time.Minute, fires: []string{"QueuepumpDistributionFails"},
	},
	{
		name: "no distributor lives when a run is due", accounts: 1,
		healthy: func(s *scene) {
			s.processor("p", works(time.Millisecond), processor.Options{})
			s.distributor("d", tasksOf(s.t, 10), distributor.Options{Cron: "*/10 * * * *"})
		},
		fault: func(s *scene) { s.processes[1].end() },
		lasts: 25 * time.Minute, fires: []string{"QueuepumpDueLate"},
	},
	{
		name: "a reducer's state is full", accounts: 1, change: func(c *pump.Config) { c.Segments, c.Delivery = 64, pump.Once },
		healthy: func(s *scene) { s.processor("p", handlers.CountBy("count", ""), processor.Options{}) },
		fault: func(s *scene) {
			var b strings.Builder
			for range 4000 {
				random := make([]byte, 500)
				_, _ = rand.Read(random)
				fmt.Fprintf(&b, "{\"key\":\"k\",\"count\":%q}\n", hex.EncodeToString(random))
			}
			path := filepath.Join(s.t.TempDir(), "keys")
			must(s.t, os.WriteFile(path, []byte(b.String()), 0o600))
			s.distributor("d", source.JSONLines(path, "key"), distributor.Options{})
		},
		lasts: 15 * time.Minute, fires: []string{"QueuepumpStateFull"},
	},
	{
		name: "runs of more than half the room are open at once", accounts: 1, long: true, change: func(c *pump.Config) { c.Segments, c.Delivery = 64, pump.Once },
		healthy: func(s *scene) { s.processor("p", works(time.Millisecond), processor.Options{}) },
		fault: func(s *scene) {
			c := s.of("senders", newMetrics(Options{Workload: "work"}))
			c.Sample = 0
			for range 3700 { // of 7,200
				c.Instance = ""
				sender, err := distributor.NewSender(c, distributor.SenderOptions{})
				if err == nil {
					err = sender.Send(s.t.Context(), source.Record{Key: []byte("k"), Body: []byte("{}")})
				}
				must(s.t, err)
				s.t.Cleanup(func() { _, _ = sender.Close(context.Background()) })
			}
		},
		// The first senders seal their runs ten minutes after they sent, and 3,700 take minutes to send.
		lasts: 330 * time.Second, fires: []string{"QueuepumpLedgerFull"},
	},
}

// sendsAndWorks is two processors with one distributor that sends a hundred tasks a minute.
func sendsAndWorks(s *scene) {
	for _, name := range []string{"p", "q"} {
		s.processor(name, works(100*time.Millisecond), processor.Options{})
	}
	s.distributor("d", tasksOf(s.t, 100), distributor.Options{Every: time.Minute})
}

// play plays a scene and has promtool judge it: none fires in five healthy minutes before the fault
// nor in half an hour of health, and those of the fault fire in the end.
func (c *planted) play(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, c.accounts)
		if c.change != nil {
			c.change(&s.config)
		}
		c.healthy(s)
		s.play(5 * time.Minute)
		var all []firing
		calm := func(until time.Duration) {
			for at := time.Duration(0); at <= until; at += time.Minute {
				all = append(all, firing{at: at})
			}
		}
		// A processor that waits for the first distributor to make the workload is not ready and samples
		// nothing, as it should.
		if len(s.processes) > 1 {
			calm(s.now())
		}
		began := s.now()
		c.fault(s)
		s.play(c.lasts)
		switch {
		case len(c.fires) == 0:
			calm(s.now())
		case c.calm > 0:
			calm(began + c.calm)
		}
		if len(c.fires) > 0 {
			all = append(all, firing{at: s.now(), alerts: c.fires, only: c.only})
		}
		s.end()
		s.judge(all)
	})
}

// TestEachAlertIsFiredByItsFaultAndNoneByHealth plays real processes on the simulator in virtual
// time, records what their metrics say every 15 s, and has promtool judge the series by the
// generated rules.
func TestEachAlertIsFiredByItsFaultAndNoneByHealth(t *testing.T) {
	proof.Only(t)
	requirePromtool(t)
	for _, c := range scenes {
		t.Run(c.name, func(t *testing.T) {
			if c.long && !*longScenes {
				t.Skip("takes minutes: make check-alerts")
			}
			c.play(t)
		})
	}
}

var longScenes = flag.Bool("alerts.long", false, "also play the scenes that take minutes")

func TestEachAlertHasAFaultThatIsPlanted(t *testing.T) {
	fired := map[string]bool{}
	for _, c := range scenes {
		for _, alert := range c.fires {
			fired[alert] = true
		}
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(alertRules(t), -1) {
		if !fired[m[1]] {
			t.Errorf("no scene plants what fires %s", m[1])
		}
		delete(fired, m[1])
	}
	for alert := range fired {
		t.Errorf("a scene waits for %s, which is no alert", alert)
	}
}
