// Package pump is the words of the pump: its configuration, tasks, handlers, errors and hooks. The
// pump turns many Azure Storage queues, spread over many accounts, into one logical queue whose
// throughput is the sum of theirs, and keeps every task until it is done.
//
// A distributor (package distributor) reads tasks from a source (package source), packs the tasks
// of one segment together into compressed envelopes and puts each envelope into the queue that is
// its segment's home. A processor (package processor) takes envelopes back, round robin over all
// queues of all accounts, hands their tasks to a [Handler] and settles each message after its tasks
// have had their effect.
//
//	cfg := pump.Config{
//		Workload: "cities",
//		Accounts: []pump.Account{
//			{ConnectionString: os.Getenv("ACCOUNT_A")},
//			{ConnectionString: os.Getenv("ACCOUNT_B")},
//		},
//	}
//	d, err := distributor.New(cfg, source.JSONLines("cities.jsonl", "city"), distributor.Options{})
//	...
//	sent, err := d.Run(ctx)
//
//	p, err := processor.New(cfg, pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
//		return work(ctx, t.Body)
//	}), processor.Options{})
//	...
//	done, err := p.Run(ctx)
//
// processor.JSON makes a handler of a function of a type of your own, and package pumptest tests
// handlers in virtual time. A program whose tasks come up one by one sends them with a
// distributor.Sender. In delivery mode [Once] a ledger says exactly which tasks are done: runs.Wait
// waits until all of a run are done, and Repair of a distributor puts lost ones again. Packages
// status, accounts, quarantine, runs, workloads and gates do what an operator's commands do.
//
// # The promise
//
// Delivery is at least once: a task is delivered again when a handler fails, a process dies or an
// answer is lost, and given up only for a handler's [Reject], an exhausted [RetryPolicy], or
// contents that cannot be read; such tasks go to the workload's poison queues with their cause.
// Each task has an identity, (run, segment, n), which every copy of it carries.
//
// Every request is made once, under a deadline and within the account's and the queue's budget; a
// timeout, a broken connection and any 5xx mean "maybe done".
//
// docs/design.md walks the data path in ten steps each way, and docs/protocols.md holds the rules
// that comments cite.
package pump
