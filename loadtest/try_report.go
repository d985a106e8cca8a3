package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
)

// distributorSummary is what `distributor run --json` prints.
type distributorSummary struct {
	Run       string        `json:"run"`
	Tasks     int64         `json:"tasks"`
	Envelopes int64         `json:"envelopes"`
	BytesIn   int64         `json:"bytesIn"`
	BytesSent int64         `json:"bytesSent"`
	Requests  pump.Requests `json:"requests"`
	Throttled int64         `json:"throttled"`
	Seconds   float64       `json:"seconds"`
}

// processorSummary is what `processor run --json` prints, as far as it is needed.
type processorSummary struct {
	Handled     int64         `json:"handled"`
	Failed      int64         `json:"failed"`
	Rejected    int64         `json:"rejected"`
	Quarantined int64         `json:"quarantined"`
	Envelopes   int64         `json:"envelopes"`
	Requests    pump.Requests `json:"requests"`
	Throttled   int64         `json:"throttled"`
	Seconds     float64       `json:"seconds"`
}

// report is run.json.
type report struct {
	Tasks       int64         `json:"tasks"`       // that the distributor sent
	Handled     int64         `json:"handled"`     // different ones with a result
	Lost        int64         `json:"lost"`        // neither handled nor quarantined
	Mismatched  int64         `json:"mismatched"`  // with a wrong result
	Duplicates  int64         `json:"duplicates"`  // results beyond the first of a task
	Quarantined int64         `json:"quarantined"` // given up on, with the cause in the poison queue
	Envelopes   int64         `json:"envelopes"`   // messages sent
	Seconds     float64       `json:"seconds"`     // from the start of the processes to the last result
	Requests    pump.Requests `json:"requests"`    // by account and operation, of all processes
	Throttled   int64         `json:"throttled"`

	TasksPerSecond           float64 `json:"tasksPerSecond"`
	TasksPerEnvelope         float64 `json:"tasksPerEnvelope"`
	RequestsPerThousandTasks float64 `json:"requestsPerThousandTasks"`
	BytesIn                  int64   `json:"bytesIn"`
	BytesSent                int64   `json:"bytesSent"`

	Input       string             `json:"input"`
	Work        string             `json:"work"`
	Accounts    int                `json:"accounts"`
	Queues      int                `json:"queues"`
	Limits      string             `json:"limits"`
	Distributor distributorSummary `json:"distributor"`
	Processors  []processorSummary `json:"processors"`
	Unfinished  string             `json:"unfinished,omitempty"`
	Causes      []string           `json:"causes,omitempty"` // the first ones for which tasks were quarantined
	Go          string             `json:"go"`
	CPUs        int                `json:"cpus"`
	Time        time.Time          `json:"time"`
}

// report accounts for every task.
func (t *trial) report() (*report, error) {
	f := t.flags
	r := &report{
		Tasks: t.summary.Tasks, Handled: int64(t.results.handled()), Duplicates: int64(t.results.duplicates),
		Envelopes: t.summary.Envelopes, Seconds: t.took.Seconds(), Requests: pump.Requests{},
		BytesIn: t.summary.BytesIn, BytesSent: t.summary.BytesSent,
		Input: f.input, Work: t.work, Accounts: f.simulate.accounts, Queues: f.simulate.queues, Limits: f.simulate.limits,
		Distributor: t.summary, Processors: t.summaries,
		Go: runtime.Version(), CPUs: runtime.NumCPU(), Time: t.began.UTC(),
	}
	if t.unfinished != nil {
		r.Unfinished = t.unfinished.Error()
	}
	addRequests(r.Requests, t.summary.Requests)
	r.Throttled = t.summary.Throttled
	for _, s := range t.summaries {
		addRequests(r.Requests, s.Requests)
		r.Throttled += s.Throttled
		r.Quarantined += s.Quarantined
	}
	for _, p := range t.processors {
		for _, cause := range p.quarantineCauses() {
			if len(r.Causes) < keptCauses && !slices.Contains(r.Causes, cause) {
				r.Causes = append(r.Causes, cause)
			}
		}
	}
	r.Lost = max(r.Tasks-r.Handled-r.Quarantined, 0)
	if f.files != "" {
		r.Input = f.files
		lost, mismatched, err := t.results.compare(t.paths)
		if err != nil {
			return nil, err
		}
		// Both counts must hold: a file that was never sent is lost too.
		r.Lost, r.Mismatched = max(r.Lost, int64(lost)), int64(mismatched)
	}
	r.TasksPerSecond = float64(r.Handled) / max(r.Seconds, 1e-3)
	r.TasksPerEnvelope = float64(r.Tasks) / float64(max(r.Envelopes, 1))
	r.RequestsPerThousandTasks = float64(r.Requests.Total()) * 1000 / float64(max(r.Tasks, 1))
	return r, nil
}

// verdict is nil if every task was handled, and rightly.
func (r *report) verdict() error {
	if r.Lost == 0 && r.Mismatched == 0 && r.Quarantined == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %d tasks lost, %d quarantined, %d results wrong", r.Lost, r.Tasks, r.Quarantined, r.Mismatched)
	for _, cause := range r.Causes {
		err = fmt.Errorf("%w\nquarantined because of: %s", err, cause)
	}
	return err
}

func addRequests(to, from pump.Requests) {
	for account, ops := range from {
		if to[account] == nil {
			to[account] = map[string]int64{}
		}
		for op, n := range ops {
			to[account][op] += n
		}
	}
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(text, '\n'), 0o644)
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s over %s x %s (limits: %s) to %s\n", r.Input, cli.Plural(r.Tasks, "task"),
		cli.Plural(int64(r.Accounts), "account"), cli.Plural(int64(r.Queues), "queue"), r.Limits, cli.Plural(int64(len(r.Processors)), "processor"))
	fmt.Fprintf(w, "work: %s\n", r.Work)
	fmt.Fprintf(w, "%s handled, %s lost, %s wrong, %s done twice", cli.Count(r.Handled), cli.Count(r.Lost), cli.Count(r.Mismatched), cli.Count(r.Duplicates))
	if r.Quarantined > 0 {
		fmt.Fprintf(w, ", %s quarantined", cli.Count(r.Quarantined))
	}
	fmt.Fprintf(w, "\n%.1f s, %s tasks/s; %s of %.1f tasks, %s read, %s sent\n", r.Seconds, cli.Count(int64(r.TasksPerSecond)),
		cli.Plural(r.Envelopes, "message"), r.TasksPerEnvelope, cli.Bytes(r.BytesIn), cli.Bytes(r.BytesSent))
	for i, p := range r.Processors {
		fmt.Fprintf(w, "processor %d: %s from %s\n", i+1, cli.Plural(p.Handled, "task"), cli.Plural(p.Envelopes, "message"))
	}
	cli.Requests(w, r.Requests, r.Throttled, r.Tasks)
	if r.Unfinished != "" {
		fmt.Fprintf(w, "given up: %s\n", r.Unfinished)
	}
}
