package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/simserver"
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

// accounting is run.json.
type accounting struct {
	Tasks      int64 `json:"tasks"`      // that the distributor sent
	Handled    int64 `json:"handled"`    // different ones with a result
	Lost       int64 `json:"lost"`       // neither handled nor in quarantine
	Mismatched int64 `json:"mismatched"` // with a wrong result
	Duplicates int64 `json:"duplicates"` // results beyond the first of a task
	// different ones without a result, in a poison queue
	Quarantined int64         `json:"quarantined"`
	Envelopes   int64         `json:"envelopes"` // messages sent
	Seconds     float64       `json:"seconds"`   // from the start of the processes to the last result
	Requests    pump.Requests `json:"requests"`  // by account and operation, of all processes
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
	// given up before every task was accounted for
	Unfinished bool      `json:"unfinished,omitempty"`
	Error      string    `json:"error,omitempty"`  // why the status is not 0
	Causes     []string  `json:"causes,omitempty"` // the first causes for which tasks were quarantined
	Go         string    `json:"go"`
	CPUs       int       `json:"cpus"`
	Time       time.Time `json:"time"`
}

// failure is run.json of a trial that failed before the tasks were accounted for. It leaves out the
// counts that would have to be guessed.
type failure struct {
	Unfinished bool      `json:"unfinished"` // true
	Error      string    `json:"error"`
	Input      string    `json:"input"`
	Seconds    float64   `json:"seconds"` // until it failed
	Time       time.Time `json:"time"`
}

func (t *trial) failed(err error) *failure {
	return &failure{
		Unfinished: true, Error: err.Error(), Input: cmp.Or(t.flags.files, t.flags.input),
		Seconds: time.Since(t.began).Seconds(), Time: t.began.UTC(),
	}
}

// lost is how many of the sent tasks are neither among the results nor in quarantine. It counts
// identities, because a task may be in both, or several times in each; this run did not send tasks
// of another run.
func (t *trial) lost() int64 {
	found := 0
	for id := range t.results.seen {
		if id.Run == t.summary.Run {
			found++
		}
	}
	for id := range t.quarantine.keys {
		if id.Run == t.summary.Run && t.results.seen[id] == 0 {
			found++
		}
	}
	return max(t.summary.Tasks-int64(found), 0)
}

// given counts what is in quarantine and has no result, and gives the keys of these tasks.
func (t *trial) given() (n int64, keys map[string]bool) {
	keys = map[string]bool{}
	for id, key := range t.quarantine.keys {
		if t.results.seen[id] == 0 {
			n++
			keys[key] = true
		}
	}
	return n + int64(t.quarantine.unreadable), keys
}

// report accounts for every task.
func (t *trial) report() (*accounting, error) {
	f := t.flags
	r := &accounting{
		Tasks: t.summary.Tasks, Handled: int64(t.results.handled()),
		Duplicates: int64(t.results.duplicates), Envelopes: t.summary.Envelopes,
		Seconds: t.took.Seconds(), Requests: pump.Requests{}, BytesIn: t.summary.BytesIn,
		BytesSent: t.summary.BytesSent, Input: f.input, Work: t.work, Accounts: f.simulate.Count,
		Queues: f.simulate.Queues, Limits: f.simulate.Limits, Distributor: t.summary,
		Processors: t.summaries, Go: runtime.Version(), CPUs: runtime.NumCPU(), Time: t.began.UTC(),
	}
	addRequests(r.Requests, t.summary.Requests)
	r.Throttled = t.summary.Throttled
	for _, s := range t.summaries {
		addRequests(r.Requests, s.Requests)
		r.Throttled += s.Throttled
	}
	for _, p := range t.processors {
		for _, cause := range p.quarantineCauses() {
			if len(r.Causes) < keptCauses && !slices.Contains(r.Causes, cause) {
				r.Causes = append(r.Causes, cause)
			}
		}
	}
	var quarantined map[string]bool
	r.Quarantined, quarantined = t.given()
	r.Lost = t.lost()
	if f.files != "" {
		r.Input = f.files
		lost, mismatched, err := t.results.compare(t.paths, quarantined)
		if err != nil {
			return nil, err
		}
		// Both counts must hold: a file that was never sent is lost too.
		r.Lost, r.Mismatched = max(r.Lost, int64(lost)), int64(mismatched)
	}
	r.TasksPerSecond = float64(r.Handled) / max(r.Seconds, 1e-3)
	r.TasksPerEnvelope = float64(r.Tasks) / float64(max(r.Envelopes, 1))
	r.RequestsPerThousandTasks = float64(r.Requests.Total()) * 1000 / float64(max(r.Tasks, 1))
	r.Unfinished = t.unfinished != nil
	if err := errors.Join(t.unfinished, r.verdict()); err != nil {
		r.Error = err.Error()
	}
	return r, nil
}

// verdict is nil if every task was handled, and rightly.
func (r *accounting) verdict() error {
	if r.Unfinished && r.Error != "" {
		return errors.New(r.Error)
	}
	if r.Lost == 0 && r.Mismatched == 0 && r.Quarantined == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %d tasks lost, %d quarantined, %d results wrong",
		r.Lost, r.Tasks, r.Quarantined, r.Mismatched)
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

// writeReport writes a report or a failure.
func writeReport(path string, r any) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return simserver.WriteFile(path, append(text, '\n'), 0o644)
}

func (r *accounting) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s over %s x %s (limits: %s) to %s\n", r.Input, cli.Plural(r.Tasks, "task"),
		cli.Plural(int64(r.Accounts), "account"), cli.Plural(int64(r.Queues), "queue"), r.Limits,
		cli.Plural(int64(len(r.Processors)), "processor"))
	fmt.Fprintf(w, "work: %s\n", r.Work)
	fmt.Fprintf(w, "%s handled, %s lost, %s wrong, %s done twice", humanize.Comma(r.Handled),
		humanize.Comma(r.Lost), humanize.Comma(r.Mismatched), humanize.Comma(r.Duplicates))
	if r.Quarantined > 0 {
		fmt.Fprintf(w, ", %s quarantined", humanize.Comma(r.Quarantined))
	}
	fmt.Fprintf(w, "\n%.1f s, %s tasks/s; %s of %.1f tasks, %s read, %s sent\n",
		r.Seconds, humanize.Comma(int64(r.TasksPerSecond)), cli.Plural(r.Envelopes, "message"),
		r.TasksPerEnvelope, cli.Bytes(r.BytesIn), cli.Bytes(r.BytesSent))
	for i, p := range r.Processors {
		fmt.Fprintf(w, "processor %d: %s from %s\n", i+1, cli.Plural(p.Handled, "task"),
			cli.Plural(p.Envelopes, "message"))
	}
	cli.Requests(w, r.Requests, r.Throttled, r.Tasks)
}
