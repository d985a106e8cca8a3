package main

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
)

// quarantined counts what this processor put into poison queues. It may be
// used by many at once.
type quarantined struct {
	mu    sync.Mutex
	count map[string]map[string]int64 // account, reason
}

// add is a [pump.Hooks] Quarantine.
func (q *quarantined) add(account, reason string, tasks int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count == nil {
		q.count = map[string]map[string]int64{}
	}
	if q.count[account] == nil {
		q.count[account] = map[string]int64{}
	}
	q.count[account][reason] += int64(tasks)
}

// warn says at the end what you have to look at, and where it is. Failures are the first ones of
// tasks, which are usually the causes.
func (q *quarantined) warn(log *slog.Logger, workload string, failures []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var total int64
	var queues []string
	reasons := map[string]int64{}
	for _, account := range slices.Sorted(maps.Keys(q.count)) {
		queues = append(queues, account+"/"+workload+"-poison")
		for reason, n := range q.count[account] {
			reasons[reason] += n
			total += n
		}
	}
	if total == 0 {
		return
	}
	var why []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		why = append(why, fmt.Sprintf("%s %s", reason, humanize.Comma(reasons[reason])))
	}
	attrs := []any{
		"tasks", total, "queues", strings.Join(queues, " "), "reasons", strings.Join(why, ", "),
	}
	if len(failures) > 0 {
		attrs = append(attrs, "first_failures", strings.Join(failures, " | "))
	}
	log.Warn("tasks are in quarantine; to see, redrive or drop them: distributor quarantine", attrs...)
}
