package azsim

import "net/http"

// getACL: learn.microsoft.com/rest/api/storageservices/get-queue-acl. No SAS
// may read or write access policies.
func (s *queueStore) getACL(r *request, name string) reply {
	return s.with(r, name, func(q *queue) reply {
		return reply{status: http.StatusOK, header: xmlNoCache(), body: renderACL(q.acl)}
	})
}

// setACL: learn.microsoft.com/rest/api/storageservices/set-queue-acl. It
// replaces everything; no body removes everything.
func (s *queueStore) setACL(r *request, name string) reply {
	acl, bad := parseACL(r.body, "raup")
	if bad != nil {
		return bad.answer(r)
	}
	return s.with(r, name, func(q *queue) reply {
		q.acl = acl
		return reply{status: http.StatusNoContent}
	})
}
