package azsim

import (
	"net/http"
	"time"
)

// updateMessage: learn.microsoft.com/rest/api/storageservices/update-message.
func (s *queueStore) updateMessage(r *request, name, id string) reply {
	if r.query.Get("visibilitytimeout") == "" {
		return missingParameter(r, "visibilitytimeout")
	}
	visibility, rep := intParameter(r, "visibilitytimeout", 0, 0, maxVisibility)
	if rep != nil {
		return *rep
	}
	if rep := checkReceipt(r); rep != nil {
		return *rep
	}
	var text string
	var plain bool
	if len(r.body) > 0 { // no body keeps the text (AZURE.md Q55)
		if text, plain, rep = messageText(r); rep != nil {
			return *rep
		}
	}
	return s.with(r, name, func(q *queue) reply {
		m, rep := q.held(r, id)
		if rep != nil {
			return *rep
		}
		now, lease := r.now.UnixNano(), time.Duration(visibility)*time.Second
		if len(r.body) > 0 {
			m.text, m.plain = text, plain
		}
		end := leaseEnd(m, now, lease)
		m.receipt = q.nextReceipt(receiptUpdated, end)
		q.messages.show(m, end, now)
		q.betray(m, now, lease, r.mischief, 0)
		return reply{status: http.StatusNoContent, header: http.Header{
			"X-Ms-Popreceipt":        {m.receipt.String()},
			"X-Ms-Time-Next-Visible": {time.Unix(0, end).UTC().Format(http.TimeFormat)},
		}}
	})
}

// checkReceipt refuses a pop receipt that is missing or cannot be one.
func checkReceipt(r *request) *reply {
	switch text := r.query.Get("popreceipt"); {
	case text == "":
		return new(missingParameter(r, "popreceipt"))
	case !wellFormed(text):
		return new(badParameter(r, "popreceipt", text, "Invalid pop receipt format"))
	}
	return nil
}

// held finds the message that the request's receipt proves the holding of. A receipt stays good
// after its lease ran out, until another client takes the message (AZURE.md Q46, Q52).
func (q *queue) held(r *request, id string) (*message, *reply) {
	var m *message
	if u, ok := parseGUID(id); ok {
		m = q.messages.byID[u]
	}
	switch {
	case m == nil:
	case m.receipt.String() == r.query.Get("popreceipt"):
		return m, nil
	case r.account.sim.config.PopReceiptMismatch:
		return nil, new(r.fail(http.StatusBadRequest, "PopReceiptMismatch", ""))
	}
	return nil, new(r.fail(http.StatusNotFound, "MessageNotFound", ""))
}
