package service

import (
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// Counted adds to hooks that the requests of a process are counted, whatever they come to.
func Counted(h pump.Hooks, n *atomic.Int64) pump.Hooks {
	request := h.Request
	h.Request = func(account, object, operation string, took time.Duration, err error) {
		n.Add(1)
		if request != nil {
			request(account, object, operation, took, err)
		}
	}
	return h
}
