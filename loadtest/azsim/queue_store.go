package azsim

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxMessageText is the most bytes of text that a message may hold, decoded
// (learn.microsoft.com/azure/storage/queues/scalability-targets: 64 KiB).
const maxMessageText = 65_536

// maxMessages is the most messages that one get or peek may ask for.
const maxMessages = 32

// queueStore is the queue service of one account.
type queueStore struct {
	account *account

	mu      sync.RWMutex
	queues  map[string]*queue    // guarded by mu
	deleted map[string]time.Time // when; guarded by mu; may hold names that are free again
	sweepAt int                  // at this size of deleted free names leave it; guarded by mu
}

// queue is one queue.
type queue struct {
	name string
	seed uint64

	mu       sync.Mutex // guards the rest; never held across anything that waits
	metadata map[string]string
	acl      []signedIdentifier
	deleted  bool
	serial   uint64 // of the last pop receipt
	messages messageSet
}

func newQueueStore(a *account) backend {
	return &queueStore{
		account: a, queues: make(map[string]*queue), deleted: make(map[string]time.Time),
	}
}

// find returns a living queue, locked and rid of expired messages, or nil.
func (s *queueStore) find(name string, now time.Time) *queue {
	s.mu.RLock()
	q := s.queues[name]
	s.mu.RUnlock()
	if q == nil {
		return nil
	}
	q.mu.Lock()
	if q.deleted { // between the look-up and the lock
		q.mu.Unlock()
		return nil
	}
	q.messages.expire(now.UnixNano())
	return q
}

// with runs f on a living, locked queue, or answers 404.
func (s *queueStore) with(r *request, name string, f func(q *queue) reply) reply {
	q := s.find(name, r.now)
	if q == nil {
		return r.fail(http.StatusNotFound, "QueueNotFound", "")
	}
	defer q.mu.Unlock()
	return f(q)
}

func (s *queueStore) policies(name string) ([]signedIdentifier, bool) {
	s.mu.RLock()
	q := s.queues[name]
	s.mu.RUnlock()
	if q == nil {
		return nil, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.acl, !q.deleted // acl is replaced, never changed
}

// route tells the operations of the queue service apart (AZURE.md A3).
func (s *queueStore) route(r *request) (*operation, reply) {
	segments := strings.Split(strings.Trim(r.path, "/"), "/")
	for i, p := range segments {
		u, err := url.PathUnescape(p)
		if err != nil {
			return nil, r.fail(http.StatusBadRequest, "InvalidUri", "")
		}
		segments[i] = u
	}
	comp := strings.ToLower(r.query.Get("comp"))
	name := segments[0]
	if name == "" {
		if comp == "list" && reads(r) {
			op := &operation{resource: 's'}
			return op.is("ListQueues", "", "l", func() reply { return s.listQueues(r) })
		}
		return nil, unsupported(r)
	}
	if rep := checkQueueName(r, name); rep != nil {
		return nil, *rep
	}
	switch {
	case len(segments) == 1:
		return s.routeQueue(r, name, comp)
	case len(segments) == 2 && segments[1] == "messages":
		return s.routeMessages(r, name)
	case len(segments) == 3 && segments[1] == "messages":
		return s.routeMessage(r, name, segments[2])
	}
	return nil, r.fail(http.StatusBadRequest, "InvalidUri", "")
}

func (s *queueStore) routeQueue(r *request, name, comp string) (*operation, reply) {
	op := &operation{object: name, resource: 'c'}
	if comp != "" {
		op.partition = name
	}
	switch {
	case comp == "" && r.method == http.MethodPut:
		return op.is("CreateQueue", "", "c,w", func() reply { return s.createQueue(r, name) })
	case comp == "" && r.method == http.MethodDelete:
		return op.is("DeleteQueue", "", "d", func() reply { return s.deleteQueue(r, name) })
	case comp == "metadata" && reads(r):
		return op.is("GetQueueMetadata", "r", "r", func() reply { return s.getMetadata(r, name) })
	case comp == "metadata" && r.method == http.MethodPut:
		return op.is("SetQueueMetadata", "", "w", func() reply { return s.setMetadata(r, name) })
	case comp == "acl" && reads(r): // no SAS may read or write access policies
		return op.is("GetQueueACL", "", "", func() reply { return s.getACL(r, name) })
	case comp == "acl" && r.method == http.MethodPut:
		return op.is("SetQueueACL", "", "", func() reply { return s.setACL(r, name) })
	}
	return nil, unsupported(r)
}

func (s *queueStore) routeMessages(r *request, name string) (*operation, reply) {
	op := &operation{object: name, partition: name, resource: 'o'}
	switch {
	case r.method == http.MethodPost:
		return op.is("PutMessage", "a", "a", func() reply { return s.putMessage(r, name) })
	case r.method == http.MethodGet && strings.EqualFold(r.query.Get("peekonly"), "true"):
		return op.is("PeekMessages", "r", "r", func() reply { return s.peekMessages(r, name) })
	case r.method == http.MethodGet:
		return op.is("GetMessages", "p", "p", func() reply { return s.getMessages(r, name) })
	case r.method == http.MethodDelete: // a service SAS has no permission that covers it
		return op.is("ClearMessages", "", "d", func() reply { return s.clearMessages(r, name) })
	}
	return nil, unsupported(r)
}

func (s *queueStore) routeMessage(r *request, name, id string) (*operation, reply) {
	op := &operation{object: name, partition: name, resource: 'o'}
	switch r.method {
	case http.MethodPut:
		return op.is("UpdateMessage", "u", "u", func() reply { return s.updateMessage(r, name, id) })
	case http.MethodDelete:
		return op.is("DeleteMessage", "p", "p", func() reply { return s.deleteMessage(r, name, id) })
	}
	return nil, unsupported(r)
}

func reads(r *request) bool { return r.method == http.MethodGet || r.method == http.MethodHead }

func unsupported(r *request) reply {
	return r.fail(http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "")
}

// checkQueueName applies the naming rules of
// learn.microsoft.com/rest/api/storageservices/naming-queues-and-metadata: 3 to
// 63 lower-case letters, digits and single dashes, which are not at the ends.
func checkQueueName(r *request, name string) *reply {
	bad := func(code string) *reply {
		return new(r.fail(http.StatusBadRequest, code, ""))
	}
	for i, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-' && i > 0 && i < len(name)-1 && name[i-1] != '-':
		default:
			return bad("InvalidResourceName")
		}
	}
	if len(name) < 3 || len(name) > 63 {
		return bad("OutOfRangeInput")
	}
	return nil
}

// intParameter reads an integer of the query within [least, most]; absent gives def.
func intParameter(r *request, name string, def, least, most int64) (int64, *reply) {
	text := r.query.Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, new(badParameter(r, name, text, ""))
	}
	if n < least || n > most {
		return 0, new(r.fail(http.StatusBadRequest, "OutOfRangeQueryParameterValue", "",
			element{"QueryParameterName", name},
			element{"QueryParameterValue", text},
			element{"MinimumAllowed", itoa(least)},
			element{"MaximumAllowed", itoa(most)}))
	}
	return n, nil
}

func badParameter(r *request, name, value, reason string) reply {
	extra := []element{{"QueryParameterName", name}, {"QueryParameterValue", value}}
	if reason != "" {
		extra = append(extra, element{"Reason", reason})
	}
	return r.fail(http.StatusBadRequest, "InvalidQueryParameterValue", "", extra...)
}

func missingParameter(r *request, name string) reply {
	return r.fail(http.StatusBadRequest, "MissingRequiredQueryParameter", "",
		element{"QueryParameterName", name})
}
