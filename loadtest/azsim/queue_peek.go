package azsim

import "net/http"

// peekMessages: learn.microsoft.com/rest/api/storageservices/peek-messages.
func (s *queueStore) peekMessages(r *request, name string) reply {
	n, rep := intParameter(r, "numofmessages", 1, 1, maxMessages)
	if rep != nil {
		return *rep
	}
	return s.with(r, name, func(q *queue) reply {
		ms := q.messages.visible(r.now.UnixNano(), int(n))
		return reply{
			status: http.StatusOK, header: xmlNoCache(), body: renderPeeked(ms), served: len(ms),
		}
	})
}
