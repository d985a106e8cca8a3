package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
)

// sample is what a metric is at one moment. One without a value is not shown: of an unknown figure
// alerts and scalers keep the last value.
type sample struct {
	name, help string // without the prefix
	kind       prometheus.ValueType
	value      *float64
}

type number interface {
	int | int64 | uint64 | float64
}

func counter[N number](name string, value N, help string) sample {
	return sample{name, help, prometheus.CounterValue, new(float64(value))}
}

func gauge[N number](name string, value N, help string) sample {
	return sample{name, help, prometheus.GaugeValue, new(float64(value))}
}

// known is a gauge that has no value at times.
func known(name string, value *float64, help string) sample {
	return sample{name, help, prometheus.GaugeValue, value}
}

// group are samples that have a label in common, or have none.
type group struct {
	samples []sample
	label   []string
	of      []string // the label's value
}

func labelled(label, of string, samples ...sample) group {
	return group{samples, []string{label}, []string{of}}
}

func (g *group) desc(s *sample) *prometheus.Desc {
	return prometheus.NewDesc("queuepump_"+s.name, s.help, g.label, nil)
}

// collector are the metrics that are read from a process's state when they are asked for.
type collector[S any] struct {
	state  func() S
	sketch S // a state that has a place for each metric
	groups func(*S) []group
}

func (c *collector[S]) Describe(out chan<- *prometheus.Desc) {
	for _, g := range c.groups(&c.sketch) {
		for _, s := range g.samples {
			out <- g.desc(&s)
		}
	}
}

func (c *collector[S]) Collect(out chan<- prometheus.Metric) {
	state := c.state()
	for _, g := range c.groups(&state) {
		for _, s := range g.samples {
			if s.value != nil {
				out <- prometheus.MustNewConstMetric(g.desc(&s), s.kind, *s.value, g.of...)
			}
		}
	}
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

// Processor are the metrics that are read from a processor's state when they are asked for.
func Processor(state func() processor.State) prometheus.Collector {
	return &collector[processor.State]{state, processor.State{
		Accounts: make([]pump.AccountState, 1), Backlog: sketchOfBacklog(),
		NotNow: processor.NotNow{Causes: map[string]int64{"": 0}},
	}, ofProcessor}
}

func ofProcessor(s *processor.State) []group {
	groups := append(shared(&s.Cluster, s.Accounts, s.Backlog, &s.Money),
		group{samples: processorGauges(s)}, group{samples: processorCounters(&s.Done)})
	for cause, n := range s.NotNow.Causes {
		groups = append(groups, labelled("cause", cause, counter("tasks_not_now_total", n,
			"Tasks put off by what their handler was told: \"not now\" (429, 503, busy), or by the handler "+
				"itself (retry).")))
	}
	return groups
}

func processorGauges(s *processor.State) []sample {
	var remaining *float64
	if s.TasksRemaining != nil {
		remaining = new(float64(*s.TasksRemaining))
	}
	return []sample{
		gauge("ready", truth(s.Ready), "1 if the process does what it should; /readyz says why not."),
		gauge("paused", truth(s.PausedSince != nil),
			"1 while an operator has paused the workload, so that nothing is started."),
		gauge("messages_in_hand", s.Messages, "Messages taken and not yet settled."),
		gauge("handlers", s.Handlers, "How many handlers may be at work at once (--concurrency)."),
		gauge("handlers_failing_tasks", s.Failing.Count,
			"Tasks that failed since the handlers fail: of late as many failed as were done; "+
				"0: they do not."),
		gauge("handlers_overdue", s.HandlersOverdue,
			"Handlers that have been at work for over a minute and ten times as long as "+
				"tasks usually take."),
		gauge("lease_seconds", s.LeaseSeconds,
			"For how long messages are hidden that are got now; it follows the work unless it is fixed."),
		gauge("retry_first_seconds", s.RetrySeconds,
			"The longest delay of a task that fails for the first time."),
		gauge("queues_read", s.Queues, "Queues that the process reads."),
		gauge("not_now_tasks_per_second", s.NotNow.Rate,
			"Tasks that the process starts a second because tasks were told \"not now\"; "+
				"0: as many as there are."),
		gauge("keys_over", s.KeysOver.Keys, "Keys that are over the limits of perKey."),
		gauge("keys_held_tasks", s.KeysOver.Tasks,
			"Tasks of keys that are over their limits, in hand and put back, about."),
		gauge("keys_wait_seconds", s.KeysOver.WaitSeconds,
			"How long the last task of such a key waits, about."),
		gauge("messages_uncommitted", s.Uncommitted,
			"Messages whose results wait to be recorded in the ledger."),
		gauge("state_used", s.StateUsed,
			"The part of its bound that the fullest reducer's state of its segments takes, from 0 to 1."),
		gauge("states_full", s.StatesFull,
			"Segments whose reducer's state had no room for results within the last hour: "+
				"their tasks wait or go into quarantine."),
		gauge("ledger_runs", s.Ledger.Runs,
			"Live runs in the ledger of the segment, of those of this process, that is nearest to a bound."),
		gauge("ledger_runs_used", part(s.Ledger.Runs, s.Ledger.RunsMost),
			"The part of the live runs that it may have, from 0 to 1; "+
				"from 0.5 on runs that no process continues end sooner, at 1 tasks of further runs wait."),
		gauge("ledger_pages_used", part(s.Ledger.Pages, s.Ledger.PagesMost),
			"The part of the pages that it may have, from 0 to 1."),
		gauge("ledger_bytes_used", part(s.Ledger.Bytes, s.Ledger.BytesMost),
			"The part of the bytes of records that it may have, from 0; "+
				"at 1 nothing more is begun that needs another record."),
		gauge("runs_unfinished", s.RunsUnfinished,
			"Runs that no process continues and that are not over yet; "+
				"the processor of rank 0 knows, which ends them, others say 0."),
		gauge("rate_limit_used_ratio", s.RateUsed,
			"What this process would start a second, as a part of --max-rate; 0 without."),
		gauge("foreign_waits", s.ForeignWaits,
			"Segments in which foreign messages have lately waited, "+
				"because deletes of done ones were not acknowledged."),
		known("tasks_remaining", remaining,
			"Tasks of runs that are not over which are neither done nor in quarantine, by the ledger, "+
				"of all runs together; from the processor of rank 0, with delivery once."),
	}
}

func processorCounters(n *processor.Summary) []sample {
	return []sample{
		counter("tasks_handled_total", n.Handled, "Tasks that the handler has done."),
		counter("tasks_failed_total", n.Failed, "Tasks whose handler failed."),
		counter("tasks_rejected_total", n.Rejected, "Tasks that the handler rejected."),
		counter("tasks_retried_total", n.Retried, "Tasks put back for another attempt."),
		counter("tasks_released_total", n.Released, "Tasks put back without an attempt."),
		counter("tasks_skipped_total", n.Skipped,
			"Tasks settled without being handled, because their key was begun too recently."),
		counter("tasks_duplicate_total", n.Duplicates,
			"Tasks recognised as done before, by the ledger or because their run was closed."),
		counter("tasks_recorded_total", n.Recorded, "Tasks whose end was recorded in the ledger."),
		counter("ledger_commits_total", n.Commits, "Group commits to the ledger."),
		counter("results_total", n.Results, "Results that are kept in blobs."),
		counter("result_bytes_total", n.ResultBytes,
			"Bytes of these results before they are compressed."),
		counter("result_objects_total", n.Objects, "Objects that these results were put in."),
		counter("result_objects_refused_total", n.ObjectsRefused,
			"Objects that an account did not take; another one took them, or they were put later."),
		counter("messages_received_total", n.Envelopes, "Messages received."),
		counter("messages_foreign_total", n.Foreign, "Messages received that no distributor made."),
		counter("messages_passed_total", n.Passed,
			"Messages of other processors' segments put back for them."),
		counter("messages_forwarded_total", n.Forwarded,
			"Messages of other processors' segments put where they belong."),
		counter("messages_split_total", n.Split,
			"Messages cut into pieces, to find a task that may end its processes."),
		counter("messages_lost_total", n.Lost,
			"Messages whose lease ended while they were in hand."),
	}
}

// Distributor are the metrics that are read from a distributor's state when they are asked for.
func Distributor(state func() distributor.State) prometheus.Collector {
	return &collector[distributor.State]{state, distributor.State{
		Accounts: make([]pump.AccountState, 1), Backlog: sketchOfBacklog(),
	}, ofDistributor}
}

func ofDistributor(s *distributor.State) []group {
	var due *float64
	if s.NextDue != nil {
		due = new(float64(s.NextDue.Unix()))
	}
	return append(shared(&s.Cluster, s.Accounts, s.Backlog, &s.Money), group{samples: []sample{
		gauge("ready", truth(s.Ready), "1 if the process does what it should; /readyz says why not."),
		gauge("distributing", truth(s.Run != ""), "1 while a distribution is under way here."),
		counter("tasks_read_total", s.Done.Tasks, "Tasks read from the source by this process."),
		counter("messages_sent_total", s.Done.Envelopes, "Messages put and acknowledged."),
		counter("messages_resent_total", s.Done.Resent,
			"Puts repeated after an answer that told nothing."),
		counter("read_bytes_total", s.Done.BytesIn, "Bytes of the bodies of tasks read."),
		counter("sent_bytes_total", s.Done.BytesSent, "Bytes of the text of acknowledged messages."),
		counter("lines_skipped_total", s.Done.Skipped, "Bad lines of the source left out."),
		counter("lines_quarantined_total", s.Done.Quarantined,
			"Bad lines of the source put into a poison queue."),
		counter("distributions_total", s.Done.Sent,
			"Distributions that ended here with everything sent."),
		counter("distributions_failed_total", s.Done.Failed,
			"Distributions that ended here in another way."),
		known("next_due_timestamp_seconds", due,
			"When the next distribution by --cron is due, in Unix time by the account's clock."),
	}})
}

// shared are the metrics of both sides.
func shared(
	cluster *pump.ClusterState, accounts []pump.AccountState, b *pump.Backlog, d *pump.CostOfDay,
) []group {
	groups := append(ofMoney(d), group{samples: ofCluster(cluster)})
	for _, a := range accounts {
		groups = append(groups, labelled("account", a.Name,
			gauge("budget_messages_per_second", a.BudgetRate,
				"Messages a second that this process may spend on the account now."),
			gauge("budget_target_messages_per_second", a.BudgetTarget,
				"What that grows to while nothing is throttled: this process's share."),
			gauge("account_silent_seconds", a.DownSeconds,
				"For how long the account has answered no request; 0: it does."),
			gauge("account_refused", truth(a.Refused),
				"1 if the account's last answer was that the credential is not good."),
			gauge("queue_limit_used_ratio", a.QueueUsed,
				"What this process would ask of the queue that it asks most of, divided by a queue's limit.")))
	}
	if b != nil {
		groups = append(groups, ofBacklog(b, time.Now())...)
	}
	return groups
}

func ofCluster(s *pump.ClusterState) []sample {
	return []sample{
		gauge("members", s.Members, "Live processes of the workload, as this one sees them."),
		gauge("rank", s.Rank, "Place among the processors that take segments, from 0; -1: none."),
		gauge("segments", s.Segments, "Segments of the workload; 0 if they have no owners."),
		gauge("segments_held", s.Held, "Segments that this process holds."),
		gauge("segments_planned", s.Planned, "Segments that this process should hold."),
		gauge("segments_missing", s.Missing, "Of those planned, the segments that it does not hold yet."),
		gauge("segments_unowned", s.Unowned, "Segments that no live process owns."),
		gauge("segments_unowned_seconds", s.UnownedSeconds,
			"For how long the longest of the segments without an owner has had none."),
		gauge("control_dark_seconds", s.DarkSeconds,
			"For how long the control account has not answered; 0: it does."),
		gauge("map_version", s.MapVersion, "Version of the shard map."),
	}
}
