package admin

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/serve"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	public "github.com/queuepump/queuepump/pump/metrics"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

var update = flag.Bool("update", false, "write docs/metrics.md and the golden files of generate")

// family is a metric with its series, in their order.
type family struct {
	kind, help string
	series     []series
}

// series has the count of what was observed as the value of a histogram.
type series struct {
	labels map[string]string
	value  float64
}

var (
	aboutFamily = regexp.MustCompile(`^# (HELP|TYPE) (\w+) (.*)$`)
	oneSeries   = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (\S+)$`)
	oneLabel    = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*")`)
)

// familiesIn reads Prometheus' text format.
func familiesIn(t *testing.T, text string) map[string]*family {
	t.Helper()
	all := map[string]*family{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := aboutFamily.FindStringSubmatch(line); m != nil {
			if m[1] == "HELP" {
				all[m[2]] = &family{help: m[3]}
			} else {
				all[m[2]].kind = m[3]
			}
			continue
		}
		m := oneSeries.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%q is not a line of metrics", line)
		}
		f := all[m[1]]
		if f == nil {
			name, counts := strings.CutSuffix(m[1], "_count")
			if f = all[name]; !counts || f == nil {
				continue // a bucket, a sum
			}
		}
		one := series{labels: map[string]string{}}
		for _, l := range oneLabel.FindAllStringSubmatch(m[2], -1) {
			value, err := strconv.Unquote(l[2])
			must(t, err)
			one.labels[l[1]] = value
		}
		var err error
		one.value, err = strconv.ParseFloat(m[3], 64)
		must(t, err)
		f.series = append(f.series, one)
	}
	return all
}

// allMetrics are all families of both roles, and what promlint says of them: each is made to have a
// series.
func allMetrics(t *testing.T) (
	all map[string]*family, roles map[string][]string, problems []promlint.Problem,
) {
	t.Helper()
	all, roles = map[string]*family{}, map[string][]string{}
	now := time.Now()
	left := int64(7)
	accounts := []pump.AccountState{{Name: "a"}}
	backlog := &pump.Backlog{Time: now, Done: new(1.), Seconds: new(2.), Accounts: []pump.WaitingAccount{{Name: "a", Time: now}}}
	money := pump.CostOfDay{Currency: "USD", Cost: new(1.), PerDay: new(2.), Cap: new(3.)}
	for _, role := range []string{"processor", "distributor"} {
		m := newMetrics(Options{Workload: "work", Role: role, Version: "v1"})
		h := m.hooks(pump.Hooks{})
		h.Request("a", "q", "put", time.Second, nil)
		h.Request("a", "q", "put", time.Second, &storage.Error{Code: storage.Throttled})
		h.Request("a", "work-bodies", "put-blob", time.Second, nil)
		h.Body("put-blob", 1)
		h.Quarantine("a", "rejected", 1)
		if role == "processor" {
			h.Started(1, time.Second)
			h.Ended(1, time.Second)
			m.register(public.Processor(func() processor.State {
				return processor.State{Accounts: accounts, Backlog: backlog, TasksRemaining: &left, Money: money, NotNow: processor.NotNow{Causes: map[string]int64{"429": 1}}}
			}))
		} else {
			m.register(public.Distributor(func() distributor.State {
				return distributor.State{Accounts: accounts, Backlog: backlog, Money: money, NextDue: &now}
			}))
			m.register(serve.New(serve.Options{}))
		}
		keys := service.NewKeys(slog.New(slog.DiscardHandler), nil)
		take, err := keys.Adopt([]pump.Account{{Endpoint: "https://a.queue.core.windows.net?sig=s&se=2030-01-01"}})
		must(t, err)
		take()
		m.register(keys)
		text := scraped(t, m)
		for name, f := range familiesIn(t, text) {
			if strings.HasPrefix(name, "queuepump_") {
				all[name] = f
				roles[name] = append(roles[name], role)
			}
		}
		found, err := promlint.New(strings.NewReader(text)).Lint()
		must(t, err)
		problems = append(problems, found...)
	}
	return all, roles, problems
}

func TestTheMetricsAreAsPrometheusWantsThem(t *testing.T) {
	_, _, problems := allMetrics(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestDocsMetricsIsTheTableOfTheMetrics; make docs-metrics writes it.
func TestDocsMetricsIsTheTableOfTheMetrics(t *testing.T) {
	const path = "../../docs/metrics.md"
	all, roles, _ := allMetrics(t)
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		var labels []string
		for _, n := range slices.Sorted(maps.Keys(f.series[0].labels)) {
			if n != "workload" {
				labels = append(labels, "`"+n+"`")
			}
		}
		of := strings.Join(roles[name], ", ")
		if len(roles[name]) == 2 {
			of = "both"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, f.kind, of, strings.Join(labels, ", "), strings.ReplaceAll(f.help, "|", `\|`))
	}
	if *update {
		must(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	is, err := os.ReadFile(path)
	must(t, err)
	proof.Same(t, string(is), b.String(),
		"docs/metrics.md is not what the metrics are; write it by: make docs-metrics")
}

const metricsHead = `# Metrics

Both binaries show these at ` + "`/metrics`" + ` of their [admin port](operations.md#the-admin-port),
each with the label ` + "`workload`" + `, beside those of the Go runtime and of the process. This table is
made from the program (` + "`make docs-metrics`" + `). ` + "`distributor generate grafana`" + ` prints a dashboard,
and ` + "`distributor generate alerts`" + ` the rules of [alerts](runbook.md#alerts).

One process of the workload samples each figure that is named an estimate, every 15 s
(` + "`admin: {sample: 15s}`" + ` in pump.yaml, or ` + "`off`" + `), more seldom where there are hundreds of
queues. Only that process has these series, but for a moment two may: take the maximum by workload
and account. No series carries a queue, a run or a key: there are as many as accounts and
operations.

| metric | type | of | labels | meaning |
|---|---|---|---|---|
`

// TestWhatIsGeneratedNamesMetricsThatAreThere: of alert rules, the dashboard and KEDA's query.
func TestWhatIsGeneratedNamesMetricsThatAreThere(t *testing.T) {
	all, _, _ := allMetrics(t)
	for _, kind := range []string{"alerts", "grafana", "keda"} {
		file, err := Generate(kind, GenerateOptions{Version: "v1"})
		must(t, err)
		names := metricNames(file.Text)
		if len(names) == 0 {
			t.Errorf("%s names no metric", kind)
		}
		for _, name := range names {
			if all[name] == nil {
				if f := all[strings.TrimSuffix(name, "_bucket")]; f == nil || f.kind != "histogram" {
					t.Errorf("%s names %s, which there is not", kind, name)
				}
			}
		}
	}
}
