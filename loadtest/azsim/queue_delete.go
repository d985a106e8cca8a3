package azsim

import "net/http"

// deleteQueue: learn.microsoft.com/rest/api/storageservices/delete-queue3. The
// queue is gone at once; its name is free again only after a while.
func (s *queueStore) deleteQueue(r *request, name string) (*operation, reply) {
	return &operation{
		name: "DeleteQueue", object: name, cost: 1,
		accountPermission: "d", resource: 'c',
		run: func() reply { return s.runDelete(r, name) },
	}, reply{}
}

func (s *queueStore) runDelete(r *request, name string) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil || !q.deleted.IsZero() { // deleted changes only under s.mu
		return r.fail(http.StatusNotFound, "QueueNotFound", "")
	}
	q.mu.Lock()
	q.deleted = r.now
	q.messages.clear()
	q.mu.Unlock()
	for name, q := range s.queues { // names that nobody asks for again would pile up
		if !q.deleted.IsZero() && !s.nameTaken(q, r) {
			delete(s.queues, name)
		}
	}
	return reply{status: http.StatusNoContent}
}
