package pump

import "time"

// Hooks are called by the engine, from many goroutines at once, to let metrics
// and tests see what happens. Every field may be nil. A hook must return
// quickly; it is called on the data path.
type Hooks struct {
	// Request is called after each storage request: "put", "get", "renew",
	// "replace", "delete", "read", "write" and so on, with the failure if there was one.
	Request func(account, object, operation string, took time.Duration, err error)
	// Quarantine is called after a task or message was put into a poison queue.
	Quarantine func(account, reason string, tasks int)
	// Started is called when the handling of tasks of one message starts, with how
	// long ago the message was ready to be put: to the millisecond by its maker's clock, or
	// if that is not known to the second by the service's own.
	Started func(tasks int, age time.Duration)
	// Ended is called when a handler has returned, with how many tasks it had, one or those of a
	// batch, and for how long.
	Ended func(tasks int, took time.Duration)
	// Body is called after the body of a large task was put into a blob ("put-blob") or read from one
	// ("get-blob"), with its size.
	Body func(operation string, bytes int)
	// Priced is called with the prices in force, when the process starts and when others are: those of
	// the workload's settings or of the configuration.
	Priced func(list Prices)
}
