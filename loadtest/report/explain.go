package report

// explained says what a column means; text and page show it.
type explained struct{ Name, Text string }

var legend = []explained{
	{
		"offered/s",
		"tasks that were due a second by the schedule, whatever became of those before; " +
			"\"as taken\": as many as were taken, so there is no schedule",
	},
	{"sent/s", "tasks that the distributor took from the schedule a second"},
	{"put/s, taken/s", "messages that were put and got a second"},
	{"handled/s", "tasks a second whose handling began, for the first time each"},
	{
		"use",
		"what was spent of what the accounts give: a put, a delete and a renewal are one each, " +
			"a get is one for each message or, if the test was told so, one; " +
			"a little more than 100 % is what a limit lets pass at once after a quiet time",
	},
	{"throttled", "the share of the requests to queues that an account refused as too many"},
	{
		"from schedule: p50, p90, p99, p99.9, max",
		"half, 90 %, 99 %, 99.9 %, all of the tasks began within this time of when they were due, " +
			"so that it includes the time in which no distributor took them; " +
			"empty where there is no schedule",
	},
	{
		"from send: p50, p90, p99, p99.9, max",
		"the same from when the distributor took the task: what the pump and the accounts took",
	},
	{"spent/s", "what was spent a second, in the units of the limit, with the warm-up"},
	{"peak/s", "what was spent in the busiest interval"},
	{"control", "requests to the table of the workload's rows, which has limits of its own"},
}
