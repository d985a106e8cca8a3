package azsim

import (
	"maps"
	"net/http"
	"time"
)

// deleteQueue: learn.microsoft.com/rest/api/storageservices/delete-queue3. The
// queue is gone at once; its name is free again only after a while.
func (s *queueStore) deleteQueue(r *request, name string) reply {
	if !s.remove(name, r.now) {
		return r.fail(http.StatusNotFound, "QueueNotFound", "")
	}
	return reply{status: http.StatusNoContent}
}

func (s *queueStore) remove(name string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		return false
	}
	q.mu.Lock()
	q.deleted = true
	q.messages.clear()
	q.mu.Unlock()
	delete(s.queues, name)
	s.deleted[name] = now
	s.sweep(now)
	return true
}

// sweep forgets deleted names that are free again: otherwise names that no request asks for any
// more would pile up. It waits for twice as many as the last sweep left, so that deleting many
// queues costs a constant for each.
func (s *queueStore) sweep(now time.Time) {
	if len(s.deleted) < s.sweepAt {
		return
	}
	maps.DeleteFunc(s.deleted, func(_ string, at time.Time) bool { return !s.nameTaken(at, now) })
	s.sweepAt = max(64, 2*len(s.deleted))
}
