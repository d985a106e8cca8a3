package azsim

import (
	"errors"
	"net/http"
	"time"
)

const (
	maxVisibility = 7 * 24 * 60 * 60 // seconds
	defaultTTL    = 7 * 24 * 60 * 60 // seconds
	foreverTTL    = -1
)

// putMessage: learn.microsoft.com/rest/api/storageservices/put-message.
func (s *queueStore) putMessage(r *request, name string) reply {
	visibility, rep := intParameter(r, "visibilitytimeout", 0, 0, maxVisibility)
	if rep != nil {
		return *rep
	}
	ttl, rep := timeToLive(r)
	if rep != nil {
		return *rep
	}
	if ttl != foreverTTL && visibility >= ttl {
		return badParameter(r, "visibilitytimeout", itoa(visibility),
			"messagettl must be greater than visibilitytimeout")
	}
	text, plain, rep := messageText(r)
	if rep != nil {
		return *rep
	}
	return s.with(r, name, func(q *queue) reply {
		m := &message{text: text, plain: plain, inserted: r.now.UnixNano(), expires: never}
		if ttl != foreverTTL {
			m.expires = m.inserted + ttl*int64(time.Second)
		}
		m.visible = m.inserted + visibility*int64(time.Second)
		m.receipt = q.nextReceipt(receiptGiven, m.visible)
		m.id = drawGUID(q.seed, q.messages.seq+1)
		q.messages.add(m, m.inserted)
		return reply{status: http.StatusCreated, header: xmlHeader(), body: renderPut(m)}
	})
}

// timeToLive reads messagettl: positive, or -1 for ever since version
// 2017-07-29; at most seven days before.
func timeToLive(r *request) (int64, *reply) {
	ttl, rep := intParameter(r, "messagettl", defaultTTL, -1<<31, 1<<31-1)
	if rep != nil {
		return 0, rep
	}
	forever := ttl == foreverTTL && r.sinceVersion("2017-07-29")
	if ttl <= 0 && !forever {
		return 0, new(badParameter(r, "messagettl", itoa(ttl), "messagettl must be positive or -1"))
	}
	if ttl > defaultTTL && !r.sinceVersion("2017-07-29") {
		_, rep := intParameter(r, "messagettl", 0, 1, defaultTTL)
		return 0, rep
	}
	return ttl, nil
}

// messageText reads the text out of the request's body.
func messageText(r *request) (string, bool, *reply) {
	text, plain, err := parseMessage(r.body)
	switch {
	case errors.Is(err, errNoText):
		return "", false, new(r.fail(http.StatusBadRequest, "MissingRequiredXmlNode", "",
			element{"XmlNodeName", "MessageText"}))
	case err != nil:
		return "", false, new(r.fail(http.StatusBadRequest, "InvalidXmlDocument", ""))
	case len(text) > maxMessageText:
		return "", false, new(r.fail(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "",
			element{"MaxLimit", itoa(maxMessageText)}))
	}
	return string(text), plain, nil
}

// nextReceipt makes a receipt unlike any other of the queue.
func (q *queue) nextReceipt(kind uint32, visible int64) popReceipt {
	q.serial++
	return popReceipt{kind: kind, serial: q.serial, visible: visible}
}
