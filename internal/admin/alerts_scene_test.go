package admin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	public "github.com/queuepump/queuepump/pump/metrics"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// scrapeEvery is how often a scene is scraped, and the rules are judged.
const scrapeEvery = 15 * time.Second

// scene is simulated accounts in virtual time with processes whose metrics are scraped as
// Prometheus would. promtool judges the scraped values with the rules that `distributor
// generate alerts` prints: no rule is evaluated here.
type scene struct {
	t      *testing.T
	began  time.Time
	sim    *azsim.Sim
	config pump.Config // of all processes, without what is each one's
	names  []string
	wanted map[string]bool // metrics that rules name

	processes []*process
	ticks     int
	series    map[string][]string
}

type process struct {
	name    string
	metrics *metrics
	stop    context.CancelFunc
	done    chan struct{}
}

func (p *process) end() {
	p.stop()
	<-p.done
}

func newScene(t *testing.T, accounts int) *scene {
	sc := azsim.Config{Seed: 1, Latency: 10 * time.Millisecond}
	s := &scene{began: time.Now(), t: t, series: map[string][]string{}, wanted: map[string]bool{}}
	for i := range accounts {
		s.names = append(s.names, "account"+string(rune('a'+i)))
		sc.Accounts = append(sc.Accounts, azsim.Account{Name: s.names[i]})
	}
	s.sim = azsim.New(sc)
	s.config = pump.Config{Workload: "work", Log: slog.New(slog.DiscardHandler), Sample: 15 * time.Second}
	for _, name := range metricNames(alertRules(t)) {
		s.wanted[name] = true
	}
	return s
}

// of is the configuration of one process.
func (s *scene) of(instance string, m *metrics) pump.Config {
	c := s.config
	c.Instance, c.Accounts, c.Hooks = instance, nil, m.hooks(pump.Hooks{})
	for _, name := range s.names {
		st, err := azure.Open(azure.Options{ConnectionString: s.sim.ConnectionString(name), Transport: s.sim.Transport().As(instance)})
		must(s.t, err)
		c.Accounts = append(c.Accounts, pump.Account{Storage: st, Queues: 2})
	}
	return c
}

func (s *scene) add(instance string, m *metrics, run func(context.Context) error) *process {
	ctx, cancel := context.WithCancel(s.t.Context())
	p := &process{name: instance, metrics: m, stop: cancel, done: make(chan struct{})}
	s.processes = append(s.processes, p)
	go func() {
		defer close(p.done)
		_ = run(ctx) // a fault may end it
	}()
	return p
}

func (s *scene) processor(instance string, h pump.Handler, o processor.Options) *process {
	s.t.Helper()
	m := newMetrics(Options{Workload: s.config.Workload, Role: "processor", Version: "v1"})
	p, err := processor.New(s.of(instance, m), h, o)
	must(s.t, err)
	m.register(public.Processor(p.State))
	return s.add(instance, m, func(ctx context.Context) error { _, err := p.Run(ctx); return err })
}

func (s *scene) distributor(instance string, src source.Source, o distributor.Options) *process {
	s.t.Helper()
	m := newMetrics(Options{Workload: s.config.Workload, Role: "distributor", Version: "v1"})
	d, err := distributor.New(s.of(instance, m), src, o)
	must(s.t, err)
	m.register(public.Distributor(d.State))
	return s.add(instance, m, func(ctx context.Context) error { _, err := d.Run(ctx); return err })
}

// play lets the time pass and scrapes.
func (s *scene) play(d time.Duration) {
	s.t.Helper()
	for range int(d / scrapeEvery) {
		for _, p := range s.processes {
			select {
			case <-p.done:
				continue // its port is closed
			default:
			}
			for name, f := range familiesIn(s.t, scraped(s.t, p.metrics)) {
				if s.wanted[name] {
					s.note(p.name, name, f)
				}
			}
		}
		s.ticks++
		time.Sleep(scrapeEvery)
	}
}

// scraped are a process's metrics as Prometheus reads them.
func scraped(t *testing.T, m *metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).
		ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func (s *scene) note(instance, name string, f *family) {
	for _, m := range f.series {
		if strings.HasSuffix(name, "_timestamp_seconds") {
			m.value -= float64(s.began.Unix()) // promtool's time begins at 0
		}
		m.labels["instance"] = instance
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(m.labels)) {
			parts = append(parts, fmt.Sprintf("%s=%q", name, m.labels[name]))
		}
		key := name + "{" + strings.Join(parts, ",") + "}"
		of := s.series[key]
		s.series[key] = append(s.fill(of), strconv.FormatFloat(m.value, 'f', -1, 64))
	}
}

// fill marks the scrapes that did not have a series: Prometheus takes it for over at the first.
func (s *scene) fill(of []string) []string {
	for len(of) < s.ticks {
		missing := "_"
		if len(of) > 0 && of[len(of)-1] != "_" {
			missing = "stale"
		}
		of = append(of, missing)
	}
	return of
}

// now is how much of the scene was scraped.
func (s *scene) now() time.Duration { return time.Duration(s.ticks-1) * scrapeEvery }

// end stops all processes at once.
func (s *scene) end() {
	for _, p := range s.processes {
		p.stop()
	}
	for _, p := range s.processes {
		<-p.done
	}
}

// firing is what fires at a time of a scene.
type firing struct {
	at     time.Duration
	alerts []string // that must fire; nil: none may
	only   bool     // none but those may
}

// judge has promtool play the rules over what was scraped, and checks which alerts fire when.
func (s *scene) judge(all []firing) {
	t := s.t
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [rules.yaml]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n")
	for _, key := range slices.Sorted(maps.Keys(s.series)) {
		fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", key, strings.Join(s.fill(s.series[key]), " "))
	}
	fmt.Fprintf(&b, "    promql_expr_test:\n")
	for _, f := range all {
		for _, alert := range f.alerts {
			fmt.Fprintf(&b, "      - expr: 'count by (alertname) (ALERTS{alertstate=\"firing\",alertname=\"%s\"}) > bool 0'\n        eval_time: %s\n", alert, f.at)
			fmt.Fprintf(&b, "        exp_samples: [{labels: '{alertname=\"%s\"}', value: 1}]\n", alert)
		}
		if len(f.alerts) == 0 || f.only {
			fmt.Fprintf(&b, "      - expr: 'count by (alertname) (ALERTS{alertstate=\"firing\",alertname!~\"%s\"})'\n        eval_time: %s\n        exp_samples: []\n",
				strings.Join(f.alerts, "|"), f.at)
		}
	}
	for name, text := range map[string]string{"rules.yaml": alertRules(t), "test.yaml": b.String()} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.Command("promtool", "test", "rules", "test.yaml")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
