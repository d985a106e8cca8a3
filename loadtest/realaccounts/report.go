package realaccounts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/queuepump/queuepump/internal/redact"
)

// Report is what came out. It holds no credential.
type Report struct {
	Run      string      `json:"run"` // the prefix of all names
	Began    time.Time   `json:"began"`
	Seconds  float64     `json:"seconds"`
	Parts    []string    `json:"parts"`
	Accounts []Described `json:"accounts"`
	Machine  string      `json:"machine"`
	Usage    Usage       `json:"usage"`

	Conformance *Conformance `json:"conformance,omitempty"`
	Rules       []RuleResult `json:"rules,omitempty"`
	Figures     []Figure     `json:"figures,omitempty"`
	Pump        *PumpRun     `json:"pump,omitempty"`
	Plan        *PlanBeside  `json:"plan,omitempty"`
	Kill        *KillRun     `json:"kill,omitempty"`

	Removed Removed `json:"removed"`
	Same    bool    `json:"same"` // nothing differs, nothing failed
	Failed  string  `json:"failed,omitempty"`

	secrets []string
}

// Described is an account without its credential.
type Described struct {
	Name       string `json:"name"`
	Queues     string `json:"queues"`
	Tables     string `json:"tables"`
	Credential string `json:"credential"`
}

// Usage is what was used of the budget of requests.
type Usage struct {
	Most       int64            `json:"most"`
	Used       int64            `json:"used"`
	Cost       float64          `json:"cost"`
	Currency   string           `json:"currency"`
	Prices     string           `json:"prices"`
	Parts      map[string]int64 `json:"parts"`
	Accounts   map[string]int64 `json:"accounts"`
	Operations []Operation      `json:"operations"`
}

// Operation is a kind of request with one kind of answer.
type Operation struct {
	Operation string `json:"operation"`
	Answer    string `json:"answer"`
	Requests  int64  `json:"requests"`
}

// Conformance is what became of the suite.
type Conformance struct {
	Cases     int          `json:"cases"`
	Same      int          `json:"same"`
	Seconds   float64      `json:"seconds"`
	Different []CaseResult `json:"different"`
}

// CaseResult is a case that the account fails.
type CaseResult struct {
	Case      string `json:"case"`
	Account   string `json:"account"`
	Simulator string `json:"simulator"`
}

// RuleResult is a rule of azsim/AZURE.md, as both sides answer it.
type RuleResult struct {
	Check     string `json:"check"`
	Says      string `json:"says"`
	Mark      string `json:"mark"`
	Account   string `json:"account"`
	Simulator string `json:"simulator"`
	Verdict   string `json:"verdict"`
	Detail    string `json:"detail,omitempty"`
}

// Figure is what a kind of request took.
type Figure struct {
	Account  string  `json:"account"`
	Request  string  `json:"request"`
	Requests int     `json:"requests"`
	P50      float64 `json:"p50Milliseconds"`
	P99      float64 `json:"p99Milliseconds"`
}

// PumpRun is an undisturbed run of the pump.
type PumpRun struct {
	Tasks               int     `json:"tasks"`
	Lost                int     `json:"lost"`
	Duplicates          int     `json:"duplicates"`
	Messages            int64   `json:"messages"`
	Processors          int     `json:"processors"`
	Queues              int     `json:"queues"`
	Seconds             float64 `json:"seconds"`
	TasksPerSecond      float64 `json:"tasksPerSecond"`
	TasksPerMessage     float64 `json:"tasksPerMessage"`
	RequestsPerThousand float64 `json:"requestsPerThousand"`
	TableRequests       int64   `json:"tableRequests"`
	CostPerMillion      float64 `json:"costPerMillion"`
}

// KillRun is a run with delivery once in which processes were killed.
type KillRun struct {
	Tasks         int              `json:"tasks"`
	Killed        []string         `json:"killed"`
	CountedBefore int64            `json:"countedBefore"`
	Counts        map[string]int64 `json:"counts"`
	Exact         bool             `json:"exact"`
	SecondsAfter  float64          `json:"secondsAfter"` // from the blow until all were counted
}

// PlanBeside is the plan of `distributor plan` beside what was measured.
type PlanBeside struct {
	Rate                float64   `json:"rate"`
	Fits                bool      `json:"fits"`
	Bottleneck          string    `json:"bottleneck"`
	LatencyMilliseconds float64   `json:"latencyMilliseconds"`
	Rows                []PlanRow `json:"rows"`
}

// PlanRow is one figure of both.
type PlanRow struct {
	What     string  `json:"what"`
	Planned  float64 `json:"planned"`
	Measured float64 `json:"measured"`
}

// Removed is what became of what was made.
type Removed struct {
	Earlier int      `json:"earlier"` // queues, tables and rows that earlier runs had left
	Queues  int64    `json:"queues"`  // that were made, or may have been
	Tables  int64    `json:"tables"`
	Left    []string `json:"left"` // what is still there, or may be
}

// finish closes the report.
func (r *runner) finish(failed error) {
	rep := r.report
	rep.Seconds = time.Since(r.began).Seconds()
	rep.Machine = fmt.Sprintf("%s, %d CPUs, %s", runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(),
		runtime.Version())
	rep.Usage = r.budget.usage()
	rep.Removed.Queues, rep.Removed.Tables = r.budget.created()
	if rep.Removed.Left == nil {
		rep.Removed.Left = []string{}
	}
	for _, t := range r.targets {
		rep.secrets = append(rep.secrets, t.secrets()...)
	}
	if failed != nil {
		rep.Failed = failed.Error()
	}
	rep.Same = failed == nil && len(rep.differences()) == 0
}

// differences are all that differs or was not as it must be, in a line each.
func (r *Report) differences() (list []string) {
	if c := r.Conformance; c != nil {
		for _, d := range c.Different {
			list = append(list, "conformance: "+d.Case)
		}
	}
	for _, rule := range r.Rules {
		if rule.Verdict == different {
			list = append(list, "rule "+rule.Check+": "+rule.Account)
		}
	}
	if p := r.Pump; p != nil && p.Lost != 0 {
		list = append(list, fmt.Sprintf("pump: %d of %d tasks are lost", p.Lost, p.Tasks))
	}
	if k := r.Kill; k != nil && !k.Exact {
		list = append(list, fmt.Sprintf("kill: %d of %d tasks are counted, and not each once",
			k.total(), k.Tasks))
	}
	for _, left := range r.Removed.Left {
		list = append(list, "removing: "+left)
	}
	return list
}

// Verdict is nil if nothing differs and nothing failed.
func (r *Report) Verdict() error {
	if list := r.differences(); len(list) > 0 {
		return fmt.Errorf("%d differences or failures: %s", len(list), strings.Join(list, "; "))
	}
	if r.Failed != "" {
		return errors.New(r.Failed)
	}
	return nil
}

// Summary says in some lines what came out.
func (r *Report) Summary() string {
	var b strings.Builder
	if c := r.Conformance; c != nil {
		fmt.Fprintf(&b, "conformance: %d of %d cases are as the suite says\n", c.Same, c.Cases)
	}
	if len(r.Rules) > 0 {
		n := map[string]int{}
		for _, rule := range r.Rules {
			n[rule.Verdict]++
		}
		fmt.Fprintf(&b, "rules: %d same, %d different, %d not decided\n", n[same], n[different],
			n[notDecided])
	}
	if p := r.Pump; p != nil {
		fmt.Fprintf(&b, "pump: %d tasks, %d lost, %.0f a second\n", p.Tasks, p.Lost, p.TasksPerSecond)
	}
	if k := r.Kill; k != nil {
		fmt.Fprintf(&b, "kill -9: %d tasks, %d counted\n", k.Tasks, k.total())
	}
	fmt.Fprintf(&b, "requests: %d of at most %d, some %.4f %s; left over: %d",
		r.Usage.Used, r.Usage.Most, r.Usage.Cost, r.Usage.Currency, len(r.Removed.Left))
	return b.String()
}

// undecidedRules are the rules of which this run says nothing.
func (r *Report) undecidedRules() (list []string) {
	for _, rule := range r.Rules {
		if rule.Verdict == notDecided {
			list = append(list, rule.Check)
		}
	}
	return list
}

// JSON is the report for programs.
func (r *Report) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return r.hidden(append(text, '\n')), nil
}

// hidden takes out what looks like a secret, and the secrets themselves. No text of the report
// should have any; that is made sure of here.
func (r *Report) hidden(text []byte) []byte {
	clean := redact.Cleaned(string(text))
	for _, secret := range r.secrets {
		clean = strings.ReplaceAll(clean, secret, "REDACTED")
	}
	return []byte(clean)
}

// Markdown is the report for people.
func (r *Report) Markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Real accounts: run %s\n\n", r.Run)
	fmt.Fprintf(&b, "%s, %.0f s, %s. Parts: %s.\n\n",
		r.Began.Format(time.RFC3339), r.Seconds, r.Machine, strings.Join(r.Parts, ", "))
	row(&b, "account", "queues", "tables", "credential")
	row(&b, "---", "---", "---", "---")
	for _, a := range r.Accounts {
		row(&b, a.Name, a.Queues, a.Tables, a.Credential)
	}
	fmt.Fprintln(&b)
	r.verdict(&b)
	r.rules(&b)
	r.conformance(&b)
	r.figures(&b)
	r.usage(&b)
	return r.hidden(b.Bytes())
}

func (r *Report) verdict(b *bytes.Buffer) {
	fmt.Fprint(b, "## Verdict\n\n")
	list := r.differences()
	if r.Failed != "" {
		list = append(list, "the run did not complete: "+r.Failed)
	}
	if len(list) == 0 {
		fmt.Fprintln(b, "The same as the simulator in everything that was decided.")
	}
	for _, line := range list {
		fmt.Fprintf(b, "- %s\n", oneLine(line))
	}
	if undecided := r.undecidedRules(); len(undecided) > 0 {
		fmt.Fprintf(b, "\nNot decided: %s.\n", strings.Join(undecided, ", "))
	}
	rm := &r.Removed
	fmt.Fprintf(b, "\nMade and removed: %d queues, %d tables; left over: %d. Left by "+
		"earlier runs and removed: %d.\n",
		rm.Queues, rm.Tables, len(rm.Left), rm.Earlier)
}

func (r *Report) rules(b *bytes.Buffer) {
	if len(r.Rules) == 0 {
		return
	}
	fmt.Fprint(b, "\n## Rules of loadtest/azsim/AZURE.md\n\n")
	row(b, "check", "rule", "known by", "the account", "the simulator", "verdict", "detail")
	row(b, "---", "---", "---", "---", "---", "---", "---")
	for _, rule := range r.Rules {
		row(b, rule.Check, rule.Says, rule.Mark, rule.Account, rule.Simulator, rule.Verdict, rule.Detail)
	}
}

func (r *Report) conformance(b *bytes.Buffer) {
	c := r.Conformance
	if c == nil {
		return
	}
	fmt.Fprintf(b, "\n## Conformance\n\n%d of %d cases are as the suite says, in %.0f s.\n\n", c.Same,
		c.Cases, c.Seconds)
	if len(c.Different) == 0 {
		return
	}
	row(b, "case", "the account", "the simulator")
	row(b, "---", "---", "---")
	for _, d := range c.Different {
		row(b, d.Case, d.Account, d.Simulator)
	}
}

func (r *Report) figures(b *bytes.Buffer) {
	if len(r.Figures) > 0 {
		fmt.Fprint(b, "\n## What a request takes\n\n")
		row(b, "account", "request", "requests", "p50 ms", "p99 ms")
		row(b, "---", "---", "--:", "--:", "--:")
		for _, f := range r.Figures {
			row(b, f.Account, f.Request, fmt.Sprint(f.Requests), fmt.Sprint(f.P50), fmt.Sprint(f.P99))
		}
	}
	if p := r.Pump; p != nil {
		fmt.Fprintf(b, "\n## The whole pump\n\n"+
			"%d tasks in %d messages, %d processors, %d queues: %d lost, %d done twice. "+
			"%.1f s from the start of the distributor to the last result, %.0f tasks a second. "+
			"%.1f requests to queues for a thousand tasks, %d to tables.\n",
			p.Tasks, p.Messages, p.Processors, p.Queues, p.Lost, p.Duplicates, p.Seconds, p.TasksPerSecond,
			p.RequestsPerThousand, p.TableRequests)
	}
	if p := r.Plan; p != nil {
		fmt.Fprintf(b, "\n`distributor plan` for %.0f tasks/s at %.1f ms a request (bottleneck: %s):\n\n",
			p.Rate, p.LatencyMilliseconds, p.Bottleneck)
		row(b, "", "planned", "measured")
		row(b, "---", "--:", "--:")
		for _, line := range p.Rows {
			row(b, line.What, fmt.Sprintf("%.3g", line.Planned), fmt.Sprintf("%.3g", line.Measured))
		}
	}
	if k := r.Kill; k != nil {
		fmt.Fprintf(b, "\n## kill -9\n\nDelivery once, %d tasks. Killed: %s, when %d were counted. "+
			"%d are counted in the end, %s, %.0f s after the blow.\n",
			k.Tasks, strings.Join(k.Killed, ", "), k.CountedBefore, k.total(),
			map[bool]string{true: "each exactly once", false: "and not each once"}[k.Exact], k.SecondsAfter)
	}
}

func (r *Report) usage(b *bytes.Buffer) {
	u := &r.Usage
	fmt.Fprintf(b, "\n## Requests\n\n%d of at most %d, some %.4f %s (%s).\n\n",
		u.Used, u.Most, u.Cost, u.Currency, u.Prices)
	row(b, "operation", "answer", "requests")
	row(b, "---", "---", "--:")
	for _, o := range u.Operations {
		row(b, o.Operation, o.Answer, fmt.Sprint(o.Requests))
	}
}

// row is a row of a table.
func row(b *bytes.Buffer, cells ...string) {
	for _, c := range cells {
		fmt.Fprintf(b, "| %s ", oneLine(c))
	}
	fmt.Fprintln(b, "|")
}

// oneLine makes a text fit for a cell.
func oneLine(s string) string {
	s = strings.NewReplacer("\n", " ", "|", "\\|").Replace(s)
	if len(s) > 400 {
		s = strings.ToValidUTF8(s[:400], "") + "..."
	}
	return s
}
