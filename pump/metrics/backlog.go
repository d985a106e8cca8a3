package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump"
)

type accountGauge struct {
	desc  *prometheus.Desc
	value func(a *pump.WaitingAccount, now time.Time) float64
}

func ofAccount(
	name, help string, value func(a *pump.WaitingAccount, now time.Time) float64,
) accountGauge {
	return accountGauge{newDesc(name, help, "account"), value}
}

// accountGauges are by account. Only the process that samples has them, so that a sum or a maximum
// over all processes is right.
var accountGauges = []accountGauge{
	ofAccount("backlog_messages",
		"Estimate: messages that wait for a processor. "+
			"The service's approximate count, less what live members said in their last beats "+
			"to hold and to have put back for later; exact where a queue holds 32 or fewer.",
		func(a *pump.WaitingAccount, _ time.Time) float64 { return float64(a.Visible) }),
	ofAccount("backlog_in_flight_messages",
		"Estimate: messages in the hands of live processors, as of their last beats.",
		func(a *pump.WaitingAccount, _ time.Time) float64 { return float64(a.InFlight) }),
	ofAccount("backlog_delayed_messages",
		"Estimate: messages that live members have put back for later, as of their last beats; "+
			"what a member that has ended put back counts as waiting.",
		func(a *pump.WaitingAccount, _ time.Time) float64 { return float64(a.Delayed) }),
	ofAccount("backlog_oldest_seconds",
		"Estimate: age of the first message that a peek shows, the oldest of all queues, "+
			"by the process's clock; 0: nothing is visible. "+
			"A message that was put back is as old as when it was put.",
		func(a *pump.WaitingAccount, _ time.Time) float64 { return a.Oldest }),
	ofAccount("quarantine_messages",
		"Estimate: messages in the poison queue, as the service counts.",
		func(a *pump.WaitingAccount, _ time.Time) float64 { return float64(a.Quarantined) }),
	ofAccount("account_limit_used_ratio",
		"Estimate: messages a second that all live members would ask of the account, "+
			"divided by its limit; above 1 the limit holds them back.",
		func(a *pump.WaitingAccount, _ time.Time) float64 { return a.LimitUsed }),
	ofAccount("backlog_sample_age_seconds",
		"How old the numbers of the account are; after 5 minutes there are none.",
		func(a *pump.WaitingAccount, now time.Time) float64 { return now.Sub(a.Time).Seconds() }),
}

var (
	backlogSeconds = newDesc("backlog_seconds",
		"Estimate: how long it takes to do what waits at the rate of "+
			"queuepump_messages_done_per_second, which counts as one an hour at least.")
	doneRate = newDesc("messages_done_per_second",
		"Estimate: messages that all processors do a second, by the deletes in their beats; "+
			"it rises at once and falls within a minute or two while something waits.")
	remaining = newDesc("tasks_remaining",
		"Tasks of runs that are not over which are neither done nor in quarantine, by the ledger, "+
			"of all runs together; from the processor of rank 0, with delivery once.")
	queueUsed = newDesc("queue_limit_used_ratio",
		"What this process would ask of the queue that it asks most of, divided by a queue's limit.",
		"account")
)

func describeBacklog(out chan<- *prometheus.Desc) {
	for _, g := range accountGauges {
		out <- g.desc
	}
	out <- backlogSeconds
	out <- doneRate
}

func collectBacklog(out chan<- prometheus.Metric, b *pump.Backlog, now time.Time) {
	if b == nil {
		return
	}
	for i := range b.Accounts {
		a := &b.Accounts[i]
		for _, g := range accountGauges {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(a, now), a.Name)
		}
	}
	if b.Seconds != nil { // an unknown figure has no value: alerts and scalers keep the last one
		out <- prometheus.MustNewConstMetric(backlogSeconds, prometheus.GaugeValue, *b.Seconds)
	}
	if b.Done != nil {
		out <- prometheus.MustNewConstMetric(doneRate, prometheus.GaugeValue, *b.Done)
	}
}
