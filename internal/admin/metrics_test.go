package admin

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// must ends a test with an error.
var must = proof.Must

var hooksOfNobody pump.Hooks

// world is simulated accounts and a configuration that reaches them.
func world(t *testing.T, accounts ...string) (*azsim.Sim, pump.Config) {
	t.Helper()
	sc := azsim.Config{Limits: azsim.NoLimits()}
	for _, name := range accounts {
		sc.Accounts = append(sc.Accounts, azsim.Account{Name: name})
	}
	sim := azsim.New(sc)
	cfg := pump.Config{Workload: "test", Log: slog.New(slog.DiscardHandler)}
	for _, name := range accounts {
		st, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString(name), Transport: sim.Transport()})
		must(t, err)
		cfg.Accounts = append(cfg.Accounts, pump.Account{Storage: st, Queues: 2})
	}
	return sim, cfg
}

// tasksOf writes n lines as tasks and names them as a source.
func tasksOf(t *testing.T, n int) source.Source {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"name\":\"task %d\"}\n", i)
	}
	path := filepath.Join(t.TempDir(), "tasks")
	must(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return source.JSONLines(path, "")
}

// families reads what a port has for Prometheus.
func families(t *testing.T, s *Server) map[string]*family {
	t.Helper()
	status, header, body := ask(t, http.MethodGet, "http://"+s.Address()+"/metrics", nil)
	if status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
		t.Fatalf("/metrics: %d %v", status, header)
	}
	return familiesIn(t, body)
}

// value is that of the metric of a family with these labels, name and value in turn.
func value(t *testing.T, fs map[string]*family, name string, labels ...string) float64 {
	t.Helper()
	f := fs[name]
	if f == nil {
		t.Errorf("there is no metric %s", name)
		return -1
	}
	for _, m := range f.series {
		ok := true
		for i := 0; i < len(labels); i += 2 {
			ok = ok && m.labels[labels[i]] == labels[i+1]
		}
		if ok {
			return m.value
		}
	}
	return 0
}

// wantMetrics checks the values of metrics that have these labels.
func wantMetrics(
	t *testing.T, when string, got map[string]*family, want map[string]float64,
	labels ...string,
) {
	t.Helper()
	for name, want := range want {
		proof.Same(t, value(t, got, name, labels...), want, when, name)
	}
}

// TestTheMetricsSayWhatWasDone distributes and handles a known number of tasks,
// one of which is rejected, and reads the metrics of both.
func TestTheMetricsSayWhatWasDone(t *testing.T) {
	const n = 500
	_, cfg := world(t, "alpha", "beta")
	checkMetricsOfDistributing(t, cfg, n)
	checkMetricsOfHandling(t, cfg, n)
}

// checkMetricsOfDistributing distributes n tasks and reads the metrics.
func checkMetricsOfDistributing(t *testing.T, cfg pump.Config, n int) {
	t.Helper()
	out := open(t, func(o *Options) { o.Role = "distributor" })
	cfg.Hooks = out.Hooks(cfg.Hooks)
	d, err := distributor.New(cfg, tasksOf(t, n), distributor.Options{Pack: 10})
	must(t, err)
	out.ShowDistributor(d, d.State)
	sent, err := d.Run(t.Context())
	must(t, err)
	got := families(t, out)
	wantMetrics(t, "distributed", got, map[string]float64{
		"queuepump_tasks_read_total":           float64(n),
		"queuepump_messages_sent_total":        float64(sent.Envelopes),
		"queuepump_read_bytes_total":           float64(sent.BytesIn),
		"queuepump_sent_bytes_total":           float64(sent.BytesSent),
		"queuepump_distributions_total":        1,
		"queuepump_distributions_failed_total": 0,
		"queuepump_distributing":               0,
		"queuepump_build_info":                 1,
	}, "workload", "test")
	requestsAre(t, got, d.State().Done.Requests)
}

// checkMetricsOfHandling reads the metrics while the first of n tasks is handled, and once all are.
func checkMetricsOfHandling(t *testing.T, cfg pump.Config, n int) {
	t.Helper()
	in := open(t, nil)
	quarantined := 0
	count := func(_, _ string, tasks int) { quarantined += tasks }
	cfg.Hooks = in.Hooks(pump.Hooks{Quarantine: count})
	held, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	handle := func(_ context.Context, t *pump.Task) error {
		first.Do(func() {
			close(held)
			<-goOn
		})
		if strings.Contains(string(t.Body), "task 7\"") {
			return pump.Reject(nil)
		}
		return nil
	}
	o := processor.Options{UntilIdle: 300 * time.Millisecond}
	p, err := processor.New(cfg, pump.HandlerFunc(handle), o)
	must(t, err)
	in.ShowProcessor(p)
	done := run(t, p)
	<-held
	checkMetricsAtWork(t, in)
	close(goOn)
	summary := <-done
	if summary.Handled != int64(n-1) || summary.Rejected != 1 || quarantined != 1 {
		t.Fatalf("%+v, %d quarantined", summary, quarantined)
	}
	got := families(t, in)
	wantMetrics(t, "handled", got, map[string]float64{
		"queuepump_tasks_handled_total":     float64(n - 1),
		"queuepump_tasks_rejected_total":    1,
		"queuepump_tasks_failed_total":      0,
		"queuepump_tasks_quarantined_total": 1,
		"queuepump_task_age_seconds":        float64(n),
		"queuepump_messages_received_total": float64(summary.Envelopes),
		"queuepump_messages_lost_total":     0,
		"queuepump_ready":                   0,
		"queuepump_messages_in_hand":        0,
	}, "workload", "test")
	requestsAre(t, got, p.State().Done.Requests)
	checkNames(t, got)
}

// checkMetricsAtWork reads the metrics of a processor that has all segments and a message.
func checkMetricsAtWork(t *testing.T, in *Server) {
	t.Helper()
	until(t, "it is ready", func() bool {
		status, _ := get(t, in, "/readyz")
		return status == http.StatusOK
	})
	got := families(t, in)
	wantMetrics(t, "at work", got, map[string]float64{
		"queuepump_members":              1,
		"queuepump_rank":                 0,
		"queuepump_queues_read":          4,
		"queuepump_map_version":          1,
		"queuepump_segments":             128,
		"queuepump_segments_held":        128,
		"queuepump_segments_planned":     128,
		"queuepump_segments_missing":     0,
		"queuepump_segments_unowned":     0,
		"queuepump_control_dark_seconds": 0,
	})
	ready, hand := value(t, got, "queuepump_ready"), value(t, got, "queuepump_messages_in_hand")
	if ready != 1 || hand < 1 {
		t.Errorf("at work: ready %v, %v messages in hand", ready, hand)
	}
	for _, account := range []string{"alpha", "beta"} {
		for _, name := range []string{
			"queuepump_budget_messages_per_second", "queuepump_budget_target_messages_per_second",
		} {
			if v := value(t, got, name, "account", account); v <= 0 {
				t.Errorf("%s of %s is %v", name, account, v)
			}
		}
	}
}

// TestTheMetricsSayHowFullTheLedgerIs: a run that is open has a place in the ledger of its
// segments.
func TestTheMetricsSayHowFullTheLedgerIs(t *testing.T) {
	_, cfg := world(t, "alpha")
	cfg.Delivery = pump.Once
	s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
	must(t, err)
	in := open(t, nil)
	pc := cfg
	pc.Hooks = in.Hooks(pump.Hooks{})
	p, err := processor.New(pc, pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
	must(t, err)
	in.ShowProcessor(p)
	ctx, cancel := context.WithCancel(t.Context())
	must(t, s.Send(ctx, source.Record{Key: []byte("k"), Body: []byte("{}")}))
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx)
		done <- err
	}()
	until(t, "it is recorded", func() bool { return value(t, families(t, in), "queuepump_tasks_recorded_total") == 1 })
	got := families(t, in)
	wantMetrics(t, "recorded", got, map[string]float64{
		"queuepump_ledger_runs":       1,
		"queuepump_ledger_runs_used":  1 / float64(p.State().Ledger.RunsMost),
		"queuepump_ledger_pages_used": 0,
		"queuepump_runs_unfinished":   0,
	}, "workload", "test")
	if v := value(t, got, "queuepump_ledger_bytes_used"); v <= 0 || v > 0.01 {
		t.Errorf("%v of the bytes are used", v)
	}
	must(t, proof.ErrOf(s.Close(ctx)))
	cancel()
	<-done
	checkNames(t, got)
}

// run runs a processor beside the test.
func run(t *testing.T, p *processor.Processor) <-chan processor.Summary {
	done := make(chan processor.Summary, 1)
	go func() {
		s, err := p.Run(t.Context())
		proof.Is(t, err, nil)
		done <- s
	}()
	return done
}

// until asks again and again; a test that waits in vain is ended by its timeout.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-time.After(time.Minute):
			t.Fatalf("in vain: %s", what)
		}
	}
}

// requestsAre checks the counters of requests, by account and operation, against
// the engine's own.
func requestsAre(t *testing.T, got map[string]*family, want pump.Requests) {
	t.Helper()
	timed := map[string]int64{}
	for account, ops := range want {
		for op, n := range ops {
			timed[op] += n
			proof.Same(t, value(t, got, "queuepump_requests_total", "account", account, "operation", op), float64(n), "requests of", account, op)
		}
	}
	for op, n := range timed {
		proof.Same(t, value(t, got, "queuepump_request_duration_seconds", "operation", op), float64(n),
			"durations", op, n)
	}
}

// checkNames checks what promlint does not: TestTheMetricsAreAsPrometheusWantsThem has it judge the rest.
func checkNames(t *testing.T, got map[string]*family) {
	t.Helper()
	for _, name := range []string{"go_goroutines", "go_build_info", "process_start_time_seconds"} {
		if got[name] == nil {
			t.Errorf("there is no metric %s", name)
		}
	}
	for name, f := range got {
		if !strings.HasPrefix(name, "queuepump_") {
			continue
		}
		for _, m := range f.series {
			for l := range m.labels {
				if l == "queue" || l == "object" || l == "segment" {
					t.Errorf("%s has a label %s, which has too many values", name, l)
				}
			}
		}
	}
}

// TestThrottlesAndFailuresAreCountedByTheirCode.
func TestThrottlesAndFailuresAreCountedByTheirCode(t *testing.T) {
	s := open(t, nil)
	h := s.Hooks(pump.Hooks{})
	for code, times := range map[storage.Code]int{storage.Throttled: 3, storage.MaybeDone: 2, storage.Canceled: 7} {
		for range times {
			h.Request("alpha", "test-00", "get", 20*time.Millisecond, &storage.Error{Code: code})
		}
	}
	h.Request("alpha", "test-00", "get", 20*time.Millisecond, nil)
	got := families(t, s)
	proof.Same(t, value(t, got, "queuepump_request_duration_seconds", "operation", "get"), 6,
		"durations")
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"queuepump_requests_total", nil, 6}, // canceled ones were never sent
		{"queuepump_throttles_total", nil, 3},
		{"queuepump_request_failures_total", []string{"code", "throttled"}, 3},
		{"queuepump_request_failures_total", []string{"code", "maybe-done"}, 2},
		{"queuepump_request_failures_total", []string{"code", "canceled"}, 0},
	} {
		proof.Same(t, value(t, got, tt.name, append(tt.labels, "account", "alpha", "operation", "get")...), tt.want, tt.name, tt.labels)
	}
}

// TestNoPageHoldsASecret plants them where a process has them: in its
// configuration, on its command line, in a task, and in what an account answers.
func TestNoPageHoldsASecret(t *testing.T) {
	sim, cfg := world(t, "alpha", "beta")
	const argument, body = "Bearer-hunter2-of-the-command-line", "hunter2-of-a-task"
	old := os.Args
	os.Args = append(slices.Clone(os.Args), "--http-header", argument)
	t.Cleanup(func() { os.Args = old })
	secrets := []string{argument, body}
	for i, name := range sim.Accounts() {
		connection := sim.ConnectionString(name)
		_, rest, _ := strings.Cut(connection, "AccountKey=")
		key, _, _ := strings.Cut(rest, ";")
		if len(key) < 20 {
			t.Fatalf("no key in the connection string of %s", name)
		}
		secrets = append(secrets, key)
		cfg.Accounts[i].ConnectionString = connection
	}
	path := filepath.Join(t.TempDir(), "tasks")
	must(t, os.WriteFile(path, []byte(body+"\n"), 0o600))
	d, err := distributor.New(cfg, source.Lines(path), distributor.Options{})
	must(t, err)
	must(t, proof.ErrOf(d.Run(t.Context())))

	s := open(t, nil)
	cfg.Hooks = s.Hooks(cfg.Hooks)
	held, goOn := make(chan struct{}), make(chan struct{})
	p, err := processor.New(cfg, pump.HandlerFunc(func(context.Context, *pump.Task) error {
		close(held)
		<-goOn
		return nil
	}), processor.Options{UntilIdle: 300 * time.Millisecond})
	must(t, err)
	s.ShowProcessor(p)
	done := run(t, p)
	<-held
	// The credential of an account goes bad: what it answers must not be shown either.
	bad := sim.Inject(azsim.Rule{Account: "beta", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
	until(t, "an account refuses", func() bool { _, body := get(t, s, "/readyz"); return strings.Contains(body, "beta refuses") })
	for _, page := range []string{
		"/", "/healthz", "/readyz", "/state", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline",
		"/debug/pprof/goroutine?debug=2", "/debug/pprof/goroutine", "/debug/pprof/heap?debug=1", "/debug/pprof/heap", "/debug/pprof/allocs",
		"/debug/pprof/block", "/debug/pprof/mutex", "/debug/pprof/threadcreate", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=0.1",
	} {
		_, text := get(t, s, page)
		if z, err := gzip.NewReader(strings.NewReader(text)); err == nil {
			unpacked, err := io.ReadAll(z)
			must(t, err)
			text = string(unpacked)
		}
		for _, secret := range secrets {
			if strings.Contains(text, secret) || bytes.Contains([]byte(text), []byte(url.QueryEscape(secret))) {
				t.Errorf("%s holds a secret", page)
			}
		}
	}
	bad.Remove()
	close(goOn)
	<-done
}

// TestTheStateIsJSON that a script can rely upon.
func TestTheStateIsJSON(t *testing.T) {
	_, cfg := world(t, "alpha")
	cfg.Instance = "worker-1"
	p, err := processor.New(cfg, nil, processor.Options{Discard: true})
	must(t, err)
	s := open(t, nil)
	s.ShowProcessor(p)
	status, body := get(t, s, "/state")
	var st processor.State
	if err := json.Unmarshal([]byte(body), &st); err != nil || status != http.StatusOK || st.Instance != "worker-1" || st.Phase != "stopped" || st.Ready {
		t.Errorf("%d %s: %v", status, body, err)
	}
	if status, _ := get(t, s, "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("a processor that does not run: %d", status)
	}
}
