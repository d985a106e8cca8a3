package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
)

// sample is a metric whose value is read from a process's state.
type sample[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) float64
}

// newDesc is the description of a metric without its prefix.
func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("queuepump_"+name, help, labels, nil)
}

func describe[S any](out chan<- *prometheus.Desc, samples []sample[S]) {
	for _, s := range samples {
		out <- s.desc
	}
}

func collect[S any](out chan<- prometheus.Metric, samples []sample[S], of S) {
	for _, s := range samples {
		out <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value(of))
	}
}

func counter[S any](name, help string, value func(S) float64) sample[S] {
	return sample[S]{newDesc(name, help), prometheus.CounterValue, value}
}

func gauge[S any](name, help string, value func(S) float64) sample[S] {
	return sample[S]{newDesc(name, help), prometheus.GaugeValue, value}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// part is n of most; 0 where nothing bounds it.
func part(n, most int) float64 {
	if most == 0 {
		return 0
	}
	return float64(n) / float64(most)
}

// processorMetrics are read from a processor's state.
type processorMetrics struct{ state func() processor.State }

var processorSamples = []sample[processor.State]{
	gauge("ready", "1 if the process does what it should; /readyz says why not.",
		func(s processor.State) float64 { return truth(s.Ready) }),
	gauge("paused", "1 while an operator has paused the workload, so that nothing is started.",
		func(s processor.State) float64 { return truth(s.PausedSince != nil) }),
	gauge("messages_in_hand", "Messages taken and not yet settled.",
		func(s processor.State) float64 { return float64(s.Messages) }),
	gauge("handlers", "How many handlers may be at work at once (--concurrency).",
		func(s processor.State) float64 { return float64(s.Handlers) }),
	gauge("handlers_failing_tasks",
		"Tasks that failed since the handlers fail: of late as many failed as were done; 0: they do not.",
		func(s processor.State) float64 { return float64(s.Failing.Count) }),
	gauge("handlers_overdue",
		"Handlers that have been at work for over a minute and ten times as long as tasks usually take.",
		func(s processor.State) float64 { return float64(s.HandlersOverdue) }),
	gauge("lease_seconds",
		"For how long messages are hidden that are got now; it follows the work unless it is fixed.",
		func(s processor.State) float64 { return s.LeaseSeconds }),
	gauge("retry_first_seconds", "The longest delay of a task that fails for the first time.",
		func(s processor.State) float64 { return s.RetrySeconds }),
	gauge("queues_read", "Queues that the process reads.", func(s processor.State) float64 {
		return float64(s.Queues)
	}),
	counter("tasks_handled_total", "Tasks that the handler has done.",
		func(s processor.State) float64 { return float64(s.Done.Handled) }),
	counter("tasks_failed_total", "Tasks whose handler failed.",
		func(s processor.State) float64 { return float64(s.Done.Failed) }),
	counter("tasks_rejected_total", "Tasks that the handler rejected.",
		func(s processor.State) float64 { return float64(s.Done.Rejected) }),
	gauge("not_now_tasks_per_second",
		"Tasks that the process starts a second because tasks were told \"not now\"; "+
			"0: as many as there are.",
		func(s processor.State) float64 { return s.NotNow.Rate }),
	gauge("keys_over", "Keys that are over the limits of perKey.",
		func(s processor.State) float64 { return float64(s.KeysOver.Keys) }),
	gauge("keys_held_tasks", "Tasks of keys that are over their limits, in hand and put back, about.",
		func(s processor.State) float64 { return float64(s.KeysOver.Tasks) }),
	gauge("keys_wait_seconds", "How long the last task of such a key waits, about.",
		func(s processor.State) float64 { return s.KeysOver.WaitSeconds }),
	counter("tasks_retried_total", "Tasks put back for another attempt.",
		func(s processor.State) float64 { return float64(s.Done.Retried) }),
	counter("tasks_released_total", "Tasks put back without an attempt.",
		func(s processor.State) float64 { return float64(s.Done.Released) }),
	counter("tasks_skipped_total",
		"Tasks settled without being handled, because their key was begun too recently.",
		func(s processor.State) float64 { return float64(s.Done.Skipped) }),
	counter("tasks_duplicate_total",
		"Tasks recognised as done before, by the ledger or because their run was closed.",
		func(s processor.State) float64 { return float64(s.Done.Duplicates) }),
	counter("tasks_recorded_total", "Tasks whose end was recorded in the ledger.",
		func(s processor.State) float64 { return float64(s.Done.Recorded) }),
	counter("ledger_commits_total", "Group commits to the ledger.",
		func(s processor.State) float64 { return float64(s.Done.Commits) }),
	counter("results_total", "Results that are kept in blobs.",
		func(s processor.State) float64 { return float64(s.Done.Results) }),
	counter("result_bytes_total", "Bytes of these results before they are compressed.",
		func(s processor.State) float64 { return float64(s.Done.ResultBytes) }),
	counter("result_objects_total", "Objects that these results were put in.",
		func(s processor.State) float64 { return float64(s.Done.Objects) }),
	counter("result_objects_refused_total",
		"Objects that an account did not take; another one took them, or they were put later.",
		func(s processor.State) float64 { return float64(s.Done.ObjectsRefused) }),
	gauge("messages_uncommitted", "Messages whose results wait to be recorded in the ledger.",
		func(s processor.State) float64 { return float64(s.Uncommitted) }),
	gauge("state_used",
		"The part of its bound that the fullest reducer's state of its segments takes, from 0 to 1.",
		func(s processor.State) float64 { return s.StateUsed }),
	gauge("states_full",
		"Segments whose reducer's state had no room for results within the last hour: "+
			"their tasks wait or go into quarantine.",
		func(s processor.State) float64 { return float64(s.StatesFull) }),
	gauge("ledger_runs",
		"Live runs in the ledger of the segment, of those of this process, that is nearest to a bound.",
		func(s processor.State) float64 { return float64(s.Ledger.Runs) }),
	gauge("ledger_runs_used",
		"The part of the live runs that it may have, from 0 to 1; "+
			"from 0.5 on runs that no process continues end sooner, at 1 tasks of further runs wait.",
		func(s processor.State) float64 { return part(s.Ledger.Runs, s.Ledger.RunsMost) }),
	gauge("ledger_pages_used", "The part of the pages that it may have, from 0 to 1.",
		func(s processor.State) float64 { return part(s.Ledger.Pages, s.Ledger.PagesMost) }),
	gauge("ledger_bytes_used",
		"The part of the bytes of records that it may have, from 0; "+
			"at 1 nothing more is begun that needs another record.",
		func(s processor.State) float64 { return part(s.Ledger.Bytes, s.Ledger.BytesMost) }),
	gauge("runs_unfinished",
		"Runs that no process continues and that are not over yet; "+
			"the processor of rank 0 knows, which ends them, others say 0.",
		func(s processor.State) float64 { return float64(s.RunsUnfinished) }),
	gauge("rate_limit_used_ratio",
		"What this process would start a second, as a part of --max-rate; 0 without.",
		func(s processor.State) float64 { return s.RateUsed }),
	gauge("foreign_waits",
		"Segments in which foreign messages have lately waited, "+
			"because deletes of done ones were not acknowledged.",
		func(s processor.State) float64 { return float64(s.ForeignWaits) }),
	counter("messages_received_total", "Messages received.",
		func(s processor.State) float64 { return float64(s.Done.Envelopes) }),
	counter("messages_foreign_total", "Messages received that no distributor made.",
		func(s processor.State) float64 { return float64(s.Done.Foreign) }),
	counter("messages_passed_total", "Messages of other processors' segments put back for them.",
		func(s processor.State) float64 { return float64(s.Done.Passed) }),
	counter("messages_forwarded_total",
		"Messages of other processors' segments put where they belong.", func(s processor.State) float64 {
			return float64(s.Done.Forwarded)
		}),
	counter("messages_split_total",
		"Messages cut into pieces, to find a task that may end its processes.",
		func(s processor.State) float64 { return float64(s.Done.Split) }),
	counter("messages_lost_total", "Messages whose lease ended while they were in hand.",
		func(s processor.State) float64 { return float64(s.Done.Lost) }),
}

var notNow = newDesc("tasks_not_now_total",
	"Tasks put off by what their handler was told: \"not now\" (429, 503, busy), or by the handler "+
		"itself (retry).", "cause")

// Processor are the metrics that are read from a processor's state when they are asked for.
func Processor(state func() processor.State) prometheus.Collector {
	return &processorMetrics{state}
}

func (m *processorMetrics) Describe(out chan<- *prometheus.Desc) {
	describe(out, processorSamples)
	out <- notNow
	out <- remaining
	describeShared(out)
}

func (m *processorMetrics) Collect(out chan<- prometheus.Metric) {
	st := m.state()
	collect(out, processorSamples, st)
	for cause, n := range st.NotNow.Causes {
		out <- prometheus.MustNewConstMetric(notNow, prometheus.CounterValue, float64(n), cause)
	}
	if n := st.TasksRemaining; n != nil {
		out <- prometheus.MustNewConstMetric(remaining, prometheus.GaugeValue, float64(*n))
	}
	collectShared(out, st.Cluster, st.Accounts, st.Backlog)
	collectMoney(out, &st.Money)
}

// distributorMetrics are read from a distributor's state.
type distributorMetrics struct {
	state func() distributor.State
}

var distributorSamples = []sample[distributor.State]{
	gauge("ready", "1 if the process does what it should; /readyz says why not.",
		func(s distributor.State) float64 { return truth(s.Ready) }),
	gauge("distributing", "1 while a distribution is under way here.",
		func(s distributor.State) float64 { return truth(s.Run != "") }),
	counter("tasks_read_total", "Tasks read from the source by this process.",
		func(s distributor.State) float64 { return float64(s.Done.Tasks) }),
	counter("messages_sent_total", "Messages put and acknowledged.",
		func(s distributor.State) float64 { return float64(s.Done.Envelopes) }),
	counter("messages_resent_total", "Puts repeated after an answer that told nothing.",
		func(s distributor.State) float64 { return float64(s.Done.Resent) }),
	counter("read_bytes_total", "Bytes of the bodies of tasks read.",
		func(s distributor.State) float64 { return float64(s.Done.BytesIn) }),
	counter("sent_bytes_total", "Bytes of the text of acknowledged messages.",
		func(s distributor.State) float64 { return float64(s.Done.BytesSent) }),
	counter("lines_skipped_total", "Bad lines of the source left out.",
		func(s distributor.State) float64 { return float64(s.Done.Skipped) }),
	counter("lines_quarantined_total", "Bad lines of the source put into a poison queue.",
		func(s distributor.State) float64 { return float64(s.Done.Quarantined) }),
	counter("distributions_total", "Distributions that ended here with everything sent.",
		func(s distributor.State) float64 { return float64(s.Done.Sent) }),
	counter("distributions_failed_total", "Distributions that ended here in another way.",
		func(s distributor.State) float64 { return float64(s.Done.Failed) }),
}

// Distributor are the metrics that are read from a distributor's state when they are asked for.
func Distributor(state func() distributor.State) prometheus.Collector {
	return &distributorMetrics{state}
}

// nextDue has no value without a schedule.
var nextDue = newDesc("next_due_timestamp_seconds",
	"When the next distribution by --cron is due, in Unix time by the account's clock.")

func (m *distributorMetrics) Describe(out chan<- *prometheus.Desc) {
	describe(out, distributorSamples)
	out <- nextDue
	describeShared(out)
}

func (m *distributorMetrics) Collect(out chan<- prometheus.Metric) {
	st := m.state()
	collect(out, distributorSamples, st)
	if at := st.NextDue; at != nil {
		out <- prometheus.MustNewConstMetric(nextDue, prometheus.GaugeValue, float64(at.Unix()))
	}
	collectShared(out, st.Cluster, st.Accounts, st.Backlog)
	collectMoney(out, &st.Money)
}

var clusterSamples = []sample[pump.ClusterState]{
	gauge("members", "Live processes of the workload, as this one sees them.",
		func(s pump.ClusterState) float64 { return float64(s.Members) }),
	gauge("rank", "Place among the processors that take segments, from 0; -1: none.",
		func(s pump.ClusterState) float64 { return float64(s.Rank) }),
	gauge("segments", "Segments of the workload; 0 if they have no owners.",
		func(s pump.ClusterState) float64 { return float64(s.Segments) }),
	gauge("segments_held", "Segments that this process holds.",
		func(s pump.ClusterState) float64 { return float64(s.Held) }),
	gauge("segments_planned", "Segments that this process should hold.",
		func(s pump.ClusterState) float64 { return float64(s.Planned) }),
	gauge("segments_missing", "Of those planned, the segments that it does not hold yet.",
		func(s pump.ClusterState) float64 { return float64(s.Missing) }),
	gauge("segments_unowned", "Segments that no live process owns.",
		func(s pump.ClusterState) float64 { return float64(s.Unowned) }),
	gauge("segments_unowned_seconds",
		"For how long the longest of the segments without an owner has had none.",
		func(s pump.ClusterState) float64 { return s.UnownedSeconds }),
	gauge("control_dark_seconds", "For how long the control account has not answered; 0: it does.",
		func(s pump.ClusterState) float64 { return s.DarkSeconds }),
	gauge("map_version", "Version of the shard map.", func(s pump.ClusterState) float64 {
		return float64(s.MapVersion)
	}),
}

// These metrics have a series for each account.
var (
	budgetRate = newDesc("budget_messages_per_second",
		"Messages a second that this process may spend on the account now.", "account")
	budgetTarget = newDesc("budget_target_messages_per_second",
		"What that grows to while nothing is throttled: this process's share.", "account")
	silence = newDesc("account_silent_seconds",
		"For how long the account has answered no request; 0: it does.", "account")
	refused = newDesc("account_refused",
		"1 if the account's last answer was that the credential is not good.", "account")
)

func describeShared(out chan<- *prometheus.Desc) {
	describe(out, clusterSamples)
	for _, d := range append([]*prometheus.Desc{budgetRate, budgetTarget, silence, refused, queueUsed},
		moneyDescs...) {
		out <- d
	}
	describeBacklog(out)
}

func collectShared(
	out chan<- prometheus.Metric, cluster pump.ClusterState, accounts []pump.AccountState,
	b *pump.Backlog,
) {
	collectBacklog(out, b, time.Now())
	collect(out, clusterSamples, cluster)
	for _, a := range accounts {
		for _, v := range []struct {
			desc  *prometheus.Desc
			value float64
		}{
			{budgetRate, a.BudgetRate},
			{budgetTarget, a.BudgetTarget},
			{silence, a.DownSeconds},
			{refused, truth(a.Refused)},
			{queueUsed, a.QueueUsed},
		} {
			out <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, v.value, a.Name)
		}
	}
}
