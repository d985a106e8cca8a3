package azsim

import "net/http"

// deleteMessage: learn.microsoft.com/rest/api/storageservices/delete-message2.
func (s *queueStore) deleteMessage(r *request, name, id string) reply {
	if rep := checkReceipt(r); rep != nil {
		return *rep
	}
	return s.with(r, name, func(q *queue) reply {
		m, rep := q.held(r, id)
		if rep != nil {
			return *rep
		}
		q.messages.remove(m)
		return reply{status: http.StatusNoContent}
	})
}
