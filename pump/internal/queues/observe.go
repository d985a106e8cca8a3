package queues

import (
	"time"

	"github.com/queuepump/queuepump/pump"
)

// HookRequest calls Hooks.Request, if there is one.
func HookRequest(h *pump.Hooks, account, object, operation string, took time.Duration, err error) {
	if h.Request != nil {
		h.Request(account, object, operation, took, err)
	}
}

// HookQuarantine calls Hooks.Quarantine, if there is one.
func HookQuarantine(h *pump.Hooks, account, reason string, tasks int) {
	if h.Quarantine != nil {
		h.Quarantine(account, reason, tasks)
	}
}

// HookStarted calls Hooks.Started, if there is one.
func HookStarted(h *pump.Hooks, tasks int, age time.Duration) {
	if h.Started != nil {
		h.Started(tasks, age)
	}
}

// HookEnded calls Hooks.Ended, if there is one.
func HookEnded(h *pump.Hooks, tasks int, took time.Duration) {
	if h.Ended != nil {
		h.Ended(tasks, took)
	}
}
