// Package scenario puts load on storage accounts through the pump and measures the result. It takes
// time only from package time, so it runs in a testing/synctest bubble as it does against real
// accounts.
//
// Distributor, processors and measurement are one process, so that all times are of one clock. In
// the order of a test:
//
//	scenario.go   what can be asked for, and Run
//	plan.go       each scenario as phases of load and steps that are taken
//	schedule.go   when each task is due
//	source.go     the tasks, handed to the distributor when they are due
//	task.go       what is in a task
//	cluster.go    distributor and processors, started and stopped
//	meter.go      storage accounts that count what is asked of them, and can be cut off
//	record.go     latencies, and which tasks were handled
//	series.go     what happened in each interval and phase
//	test.go       one test from end to end
//	verdict.go    the answers to what each scenario asks
//
// A test has a workload and a table of its own, under a name that is used once, and removes both at
// its end, so that it can share accounts with real work without touching it. It competes for the
// same limits, though.
package scenario
