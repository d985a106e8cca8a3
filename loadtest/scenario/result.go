package scenario

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/queuepump/queuepump/loadtest/report"
)

// result puts together what was measured.
func (t *test) result(began time.Time) *report.Result {
	r := t.record
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent.Load()
	out := &report.Result{
		Format: report.Format, Scenario: t.info.Name, Against: t.world.Against, Workload: t.workload,
		Started: began.UTC(), Seconds: t.seconds,
		Settings: t.settings(), Limits: t.world.Limits, Phases: t.phases, Series: t.series.out,
		Tasks: report.Tasks{
			Sent: sent, WarmUp: t.warmUp, Unsent: t.source.unsent, Handled: r.handled,
			Duplicates: r.duplicates, Strangers: r.strangers,
			Messages: t.sender.summary.Envelopes, Finishing: max(r.last.Seconds()-t.seconds, 0),
		},
		Machine: report.Machine{
			CPUs: runtime.GOMAXPROCS(0), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
			Version: t.o.Version, CPUSeconds: t.cpu, PeakBytes: t.series.top,
		},
	}
	if !t.cut {
		out.Tasks.Lost = sent - r.handled
	}
	t.mu.Lock()
	out.Events, out.Trouble = t.events, t.trouble
	t.mu.Unlock()
	// before and after the load
	begin, spent := t.series.beginning.accounts, t.series.phaseMark.accounts
	for i, m := range t.meters {
		c := m.read().minus(begin[i])
		out.Accounts = append(out.Accounts, report.Account{
			Name: m.name, Queues: m.queues, Limit: m.limit,
			Units: float64(spent[i].minus(begin[i]).units) / max(t.seconds, 1e-6), Peak: t.series.peaks[i],
			Put: c.puts, Taken: c.taken, Requests: c.requests, Throttled: c.throttled, Failed: c.failed,
			Control: c.control,
		})
	}
	out.Groups = t.groups()
	t.answer(out)
	return out
}

// settings are the options as they were used, in the words of the command line.
func (t *test) settings() []report.Setting {
	o := &t.o
	pack := strconv.Itoa(o.Pack)
	if o.Pack < 0 {
		pack = "as many as fit"
	}
	list := []report.Setting{
		{Name: "accounts", Value: strconv.Itoa(len(t.meters))},
		{Name: "queues", Value: strconv.Itoa(queuesOf(t.meters))},
		{Name: "segments", Value: strconv.Itoa(t.segments)},
		{Name: "processors", Value: strconv.Itoa(o.Processors)},
		{Name: "concurrency", Value: strconv.Itoa(o.Concurrency)},
		{Name: "handler-time", Value: o.HandlerTime.String()},
		{Name: "pack", Value: pack},
		{Name: "linger", Value: o.Linger.String()},
		{Name: "task-bytes", Value: strconv.Itoa(o.TaskBytes)},
		{Name: "keys", Value: strconv.Itoa(o.Keys)},
		{Name: "warm-up", Value: o.WarmUp.String()},
		{Name: "duration", Value: o.Duration.String()},
	}
	if o.Rate > 0 {
		list = append(list, report.Setting{Name: "rate", Value: fmt.Sprintf("%.6g", o.Rate)})
	}
	if o.HotShare > 0 {
		list = append(list, report.Setting{Name: "hot-share", Value: fmt.Sprintf("%.4g", o.HotShare)})
	}
	if t.info.Name == "scale-out" {
		list = append(list, report.Setting{Name: "over", Value: o.Over})
	}
	if d := t.cluster.delivery(); d != "" {
		list = append(list, report.Setting{Name: "delivery", Value: string(d)})
	}
	return list
}

// queuesOf is how many queues accounts have together.
func queuesOf(meters []*meter) (n int) {
	for _, m := range meters {
		n += m.queues
	}
	return n
}

// groups are the parts of the tasks that were looked at by themselves. The recorder is
// locked.
func (t *test) groups() (list []report.Group) {
	for g := range t.source.groups {
		sent, seen := t.source.groups[g], t.record.groups[uint8(g)]
		if seen == nil || sent.count == 0 {
			continue
		}
		list = append(list, report.Group{
			Name: t.groupName(g), Sent: sent.count, Handled: seen.handled, First: sent.first.Seconds(),
			Last:         seen.last.Seconds(),
			FromSchedule: latency(seen.schedule), FromSend: latency(seen.send),
		})
	}
	return list
}

func (t *test) groupName(g int) string {
	switch {
	case g == groupRest:
		return "other tasks"
	case t.o.HotShare > 0:
		return "hot key"
	default:
		return fmt.Sprintf("burst %d", g)
	}
}
