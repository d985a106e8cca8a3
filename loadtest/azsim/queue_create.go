package azsim

import (
	"maps"
	"net/http"
	"time"
)

// createQueue: learn.microsoft.com/rest/api/storageservices/create-queue4.
func (s *queueStore) createQueue(r *request, name string) reply {
	metadata, rep := readMetadata(r)
	if rep != nil {
		return *rep
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		if maps.Equal(q.metadata, metadata) {
			return reply{status: http.StatusNoContent}
		}
		return r.fail(http.StatusConflict, "QueueAlreadyExists", "")
	}
	if at, ok := s.deleted[name]; ok && s.nameTaken(at, r.now) {
		return r.fail(http.StatusConflict, "QueueBeingDeleted", "")
	}
	delete(s.deleted, name)
	s.queues[name] = &queue{
		name:     name,
		seed:     drawMix(s.account.seed, drawHash(name), uint64(r.now.UnixNano())),
		metadata: metadata,
		messages: newMessageSet(),
	}
	return reply{status: http.StatusCreated}
}

// nameTaken reports whether a deleted queue's name cannot be used yet. The
// server's clock decides; if it was set back past the deletion the name is
// free, rather than taken for as long as it was set back.
func (s *queueStore) nameTaken(deleted, now time.Time) bool {
	d := now.Sub(deleted)
	return d >= 0 && d < s.account.beingDeleted
}
