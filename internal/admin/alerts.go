package admin

import (
	"fmt"
	"strings"
)

// alert is a rule for Prometheus. It fires if its query has a result for as long as For says.
type alert struct{ Name, For, Severity, Summary, query string }

// alerts are the rules. In a query {} stands for the series of the workload. Its lines are those of
// the file.
var alerts = []alert{
	{
		"Quarantine", "1m", "warning", "Tasks of {{ $labels.workload }} are in quarantine.",
		`sum by (workload) (max by (workload, account) (queuepump_quarantine_messages{})) >
0`,
	},
	{
		"BacklogOld", "5m", "warning",
		"A message of {{ $labels.workload }} has waited for more than a quarter of an hour.",
		`max by (workload) (queuepump_backlog_oldest_seconds{}) > 900
unless on (workload) max by (workload) (queuepump_paused{}) > 0`,
	},
	{
		"BacklogLong", "10m", "warning",
		"What waits for {{ $labels.workload }} takes more than half an hour " +
			"at the rate at which it is done.",
		`max by (workload) (queuepump_backlog_seconds{}) > 1800
unless on (workload) max by (workload) (queuepump_paused{}) > 0`,
	},
	{
		"NothingDone", "10m", "critical",
		"Messages of {{ $labels.workload }} wait, and no task has been done for ten minutes.",
		`sum by (workload) (max by (workload, account) (queuepump_backlog_messages{})) > 0
unless on (workload) sum by (workload) (rate(queuepump_tasks_handled_total{}[5m]))
> 0 unless on (workload) max by (workload) (queuepump_paused{}) > 0`,
	},
	{
		"Paused", "1h", "warning", "{{ $labels.workload }} has been paused for an hour.",
		`max by (workload) (queuepump_paused{}) > 0`,
	},
	{
		"NoProcessor", "5m", "critical", "No processor is seen.",
		`absent(queuepump_build_info{role="processor"})`,
	},
	{
		"NotSampled", "5m", "warning", "The backlog of {{ $labels.workload }} is not known.",
		`count by (workload) (queuepump_build_info{}) unless on (workload) count by
(workload) (queuepump_backlog_sample_age_seconds{} < 180)`,
	},
	{
		"SegmentsUnowned", "1m", "critical",
		"Segments of {{ $labels.workload }} have had no owner for more than a minute.",
		`max by (workload) (queuepump_segments_unowned_seconds{}) > 60`,
	},
	{
		"ControlDark", "1m", "critical",
		"The control account of {{ $labels.workload }} has not answered for more than a minute.",
		`max by (workload) (queuepump_control_dark_seconds{}) > 60`,
	},
	{
		"AccountSilent", "1m", "critical",
		"Account {{ $labels.account }} has not answered for more than a minute.",
		`max by (workload, account) (queuepump_account_silent_seconds{}) > 60`,
	},
	{
		"AccountRefused", "1m", "critical", "Account {{ $labels.account }} refuses the credential.",
		`max by (workload, account) (queuepump_account_refused{}) > 0`,
	},
	{
		"Throttled", "10m", "warning",
		"Account {{ $labels.account }} refuses more than one in twenty requests as too many.",
		`sum by (workload, account) (rate(queuepump_throttles_total{}[5m])) > 0.05 * sum by
(workload, account) (rate(queuepump_requests_total{}[5m]))`,
	},
	{
		"LimitNear", "10m", "warning",
		"Account {{ $labels.account }} is asked for more than 80 % of its limit.",
		`max by (workload, account) (queuepump_account_limit_used_ratio{}) > 0.8`,
	},
	{
		"HandlersFail", "10m", "warning",
		"More than one in ten attempts at tasks of {{ $labels.workload }} fail, or are put off.",
		`(sum by (workload) (rate(queuepump_tasks_failed_total{}[5m])) + sum by (workload)
(rate(queuepump_tasks_not_now_total{}[5m]))) > 0.1 * (sum by (workload)
(rate(queuepump_tasks_failed_total{}[5m])) + sum by (workload)
(rate(queuepump_tasks_not_now_total{}[5m])) + sum by (workload)
(rate(queuepump_tasks_handled_total{}[5m])))`,
	},
	{
		"HandlersAllFail", "1m", "critical",
		"Handlers of {{ $labels.workload }} fail more tasks than they do.",
		`max by (workload) (queuepump_handlers_failing_tasks{}) > 0`,
	},
	{
		"HandlersStuck", "15s", "critical",
		"No handler of a processor of {{ $labels.workload }} returns.",
		`max by (workload) (queuepump_handlers_overdue{} / queuepump_handlers{}) >= 1`,
	},
	{
		"LedgerFull", "5m", "warning",
		"A segment's ledger of {{ $labels.workload }} is more than half full.",
		`max by (workload) (queuepump_ledger_runs_used{}) > 0.5 or max by (workload)
(queuepump_ledger_pages_used{}) > 0.5 or max by (workload)
(queuepump_ledger_bytes_used{}) > 0.5`,
	},
	{
		"StateFull", "5m", "critical",
		"The reducer's state of a segment of {{ $labels.workload }} is full.",
		`max by (workload) (queuepump_states_full{}) > 0`,
	},
	{
		"DistributionFails", "1m", "warning", "A distribution of {{ $labels.workload }} failed.",
		`sum by (workload) (increase(queuepump_distributions_failed_total{}[15m])) > 0`,
	},
	{
		"DueLate", "1m", "critical",
		"A distribution of {{ $labels.workload }} has been due for a quarter of an hour, " +
			"and has not begun.",
		`time() - max by (workload)
(last_over_time(queuepump_next_due_timestamp_seconds{}[4d])) > 900`,
	},
	{
		"NotReady", "10m", "warning", "{{ $labels.instance }} is not ready.",
		`queuepump_ready{} == 0`,
	},
}

// Alerts are the rules for the workload.
func (o GenerateOptions) Alerts() []alert { return alerts }

// Expr is an alert's query for the workload, or for all without one, as it stands in the file.
func (o GenerateOptions) Expr(a alert) string {
	all, processors := "", `{role="processor"}`
	if o.Workload != "" {
		all = fmt.Sprintf("{workload=%q}", o.Workload)
		processors = fmt.Sprintf(`{workload=%q,role="processor"}`, o.Workload)
	}
	return strings.NewReplacer("{}", all, `{role="processor"}`, processors,
		"\n", "\n          ").Replace(a.query)
}

// Entry is the name that the alert's entry in the runbook has in an address.
func (a alert) Entry() string { return "queuepump" + strings.ToLower(a.Name) }
