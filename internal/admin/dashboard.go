package admin

import (
	"strconv"
	"strings"
)

// panel is one panel of the dashboard for Grafana, with the unit of its values.
type panel struct {
	Title, Unit, About string
	Lines              []line
}

// line is one line of a panel. In its query {} stands for the chosen workloads, and [] for the time
// that one point of the chart spans.
type line struct{ Name, query string }

// dashboard has the panels row by row. Those of a row are equally wide. The first row has single
// values, the others have charts.
var dashboard = [][]panel{
	{
		{"Backlog", "s", "Estimate: what waits, at the rate at which it is done.", []line{
			{"", "max(queuepump_backlog_seconds{})"},
		}},
		{"Waiting", "short", "Estimate, in messages.", []line{
			{"", "sum(max by (account) (queuepump_backlog_messages{}))"},
		}},
		{"Oldest", "s", "Estimate.", []line{{"", "max(queuepump_backlog_oldest_seconds{})"}}},
		{"Tasks remaining", "short", "By the ledger; with delivery once.", []line{
			{"", "max(queuepump_tasks_remaining{})"},
		}},
		{"In quarantine", "short", "Messages.", []line{
			{"", "sum(max by (account) (queuepump_quarantine_messages{}))"},
		}},
		{"Processes not ready", "short", "", []line{{"", "sum(1 - queuepump_ready{})"}}},
	},
	{
		{"Messages", "short", "Estimates.", []line{
			{"waiting", "sum(max by (account) (queuepump_backlog_messages{}))"},
			{"in flight", "sum(max by (account) (queuepump_backlog_in_flight_messages{}))"},
			{"put back for later", "sum(max by (account) (queuepump_backlog_delayed_messages{}))"},
		}},
		{"Tasks a second", "short", "", []line{
			{"done", "sum(rate(queuepump_tasks_handled_total{}[]))"},
			{"failed", "sum(rate(queuepump_tasks_failed_total{}[]))"},
			{"retried", "sum(rate(queuepump_tasks_retried_total{}[]))"},
			{"read from sources", "sum(rate(queuepump_tasks_read_total{}[]))"},
		}},
	},
	{
		{"Waiting by account", "short", "Estimate.", []line{
			{"{{account}}", "max by (account) (queuepump_backlog_messages{})"},
		}},
		{"Oldest by account", "s", "Estimate.", []line{
			{"{{account}}", "max by (account) (queuepump_backlog_oldest_seconds{})"},
		}},
	},
	{
		{
			"Handler", "s", "Time of a task in the handler.",
			quantiles("queuepump_handler_duration_seconds"),
		},
		{"From put to start", "s", "Of all attempts.", quantiles("queuepump_task_age_seconds")},
	},
	{
		{"Requests a second", "short", "", []line{
			{"{{operation}}", "sum by (operation) (rate(queuepump_requests_total{}[]))"},
		}},
		{"Refused and failed a second", "short", "", []line{
			{"{{account}} too many", "sum by (account) (rate(queuepump_throttles_total{}[]))"},
			{
				"{{account}} {{code}}",
				"sum by (account, code) (rate(queuepump_request_failures_total{}[]))",
			},
		}},
	},
	{
		{"Account limit used", "percentunit", "Above 1 the limit holds processes back.", []line{
			{"{{account}}", "max by (account) (queuepump_account_limit_used_ratio{})"},
		}},
		{"Queue limit used", "percentunit", "The most by one process.", []line{
			{"{{account}}", "max by (account) (queuepump_queue_limit_used_ratio{})"},
		}},
		{"Ledger and state used", "percentunit", "", []line{
			{"runs", "max(queuepump_ledger_runs_used{})"},
			{"pages", "max(queuepump_ledger_pages_used{})"},
			{"bytes", "max(queuepump_ledger_bytes_used{})"},
			{"reducer's state", "max(queuepump_state_used{})"},
			{"--max-rate", "max(queuepump_rate_limit_used_ratio{})"},
		}},
	},
	{
		{"Requests, cost a day", "short", "Estimate by the prices of the configuration.", []line{{
			"{{account}} ({{currency}})",
			"sum by (account, currency) (rate(queuepump_requests_cost_total{}[1h])) * 86400",
		}}},
		{"Segments without an owner, control account dark", "s", "", []line{
			{"unowned", "max(queuepump_segments_unowned_seconds{})"},
			{"dark", "max(queuepump_control_dark_seconds{})"},
		}},
		{"Processes", "short", "", []line{
			{"{{role}} {{version}}", "count by (role, version) (queuepump_build_info{})"},
		}},
	},
}

// quantiles are three lines of a histogram.
func quantiles(histogram string) (lines []line) {
	for _, percent := range []int{50, 90, 99} {
		lines = append(lines, line{
			strconv.Itoa(percent) + " %",
			"histogram_quantile(" + strconv.FormatFloat(float64(percent)/100, 'g', -1, 64) +
				", sum by (le) (rate(" + histogram + "_bucket{}[])))",
		})
	}
	return lines
}

// Query is the line's query as Grafana takes it.
func (l line) Query() string {
	chosen := strings.NewReplacer("{}", `{workload=~"$workload"}`, "[]", "[$__rate_interval]")
	return chosen.Replace(l.query)
}

// placed is a panel with its place on the dashboard, which is 24 columns wide.
type placed struct {
	panel
	Type                    string
	ID, X, Y, Width, Height int
}

// Panels are the panels of the dashboard, each at its place.
func (o GenerateOptions) Panels() (panels []placed) {
	kind, height, y := "stat", 4, 0
	for _, row := range dashboard {
		width := 24 / len(row)
		for i, p := range row {
			panels = append(panels, placed{p, kind, len(panels) + 1, i * width, y, width, height})
		}
		y += height
		kind, height = "timeseries", 8
	}
	return panels
}

// Ref names the line of a panel with that index.
func (p placed) Ref(i int) string { return string(rune('A' + i)) }
