package azsim

import "net/http"

// clearMessages: learn.microsoft.com/rest/api/storageservices/clear-messages.
// A service SAS has no permission that covers it.
func (s *queueStore) clearMessages(r *request, name string) reply {
	return s.with(r, name, func(q *queue) reply {
		q.messages.clear()
		return reply{status: http.StatusNoContent}
	})
}
