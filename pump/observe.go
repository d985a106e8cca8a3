package pump

import "time"

func hookRequest(h *Hooks, account, object, operation string, took time.Duration, err error) {
	if h.Request != nil {
		h.Request(account, object, operation, took, err)
	}
}

func hookQuarantine(h *Hooks, account, reason string, tasks int) {
	if h.Quarantine != nil {
		h.Quarantine(account, reason, tasks)
	}
}

func hookStarted(h *Hooks, tasks int, age time.Duration) {
	if h.Started != nil {
		h.Started(tasks, age)
	}
}
