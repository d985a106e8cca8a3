package azsim

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// Stats are what a Sim has counted since it was made.
type Stats struct {
	Requests []RequestCount // sorted by account, service, operation, status, code
	// requests refused by Limits (not those refused by an injected Answer)
	Throttled int64
	Faults    map[FaultKind]int64 // faults that happened, by kind
	Blackouts map[string]int64    // requests that met an account that is dark or gone
}

// RequestCount is the number of requests that had one kind of answer.
type RequestCount struct {
	Account   string // "" if the request named none that exists
	Service   string // "queue", "table" or "blob"
	Operation string // "PutMessage", ...; "" if the request was none
	// the server's, even if a fault kept it from the client; 0: given up before it acted
	Status int
	Code   string // error code, "" on success
	Count  int64
}

// Count sums the requests of an operation on an account; "" matches all.
func (s Stats) Count(account, operation string) int64 {
	var n int64
	for _, r := range s.Requests {
		if (account == "" || r.Account == account) && (operation == "" || r.Operation == operation) {
			n += r.Count
		}
	}
	return n
}

// counters are cheap under load: one lock-free map look-up and one atomic add
// a request. Every part of a key comes from a fixed set (accounts that exist,
// names of operations, our own codes), so the maps stay small.
type counters struct {
	requests  sync.Map // requestKey -> *atomic.Int64
	faults    sync.Map // FaultKind -> *atomic.Int64
	blackouts sync.Map // account -> *atomic.Int64
	throttled atomic.Int64
}

type requestKey struct {
	account, service, operation string
	status                      int
	code                        string
}

func count(m *sync.Map, key any) {
	n, ok := m.Load(key)
	if !ok {
		n, _ = m.LoadOrStore(key, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)
}

func (c *counters) request(r *request, op *operation, rep *reply) {
	k := requestKey{service: string(r.service), status: rep.status, code: rep.code}
	if r.account != nil {
		k.account = r.account.name
	}
	if op != nil {
		k.operation = op.name
	}
	count(&c.requests, k)
}

// Stats returns a snapshot of the counters. Requests that are under way may be
// in some of them and not yet in others.
func (s *Sim) Stats() Stats {
	st := Stats{
		Throttled: s.stats.throttled.Load(), Faults: map[FaultKind]int64{}, Blackouts: map[string]int64{},
	}
	s.stats.requests.Range(func(k, v any) bool {
		key := k.(requestKey)
		st.Requests = append(st.Requests, RequestCount{
			Account: key.account, Service: key.service, Operation: key.operation,
			Status: key.status, Code: key.code, Count: v.(*atomic.Int64).Load(),
		})
		return true
	})
	slices.SortFunc(st.Requests, func(a, b RequestCount) int {
		return cmp.Or(
			cmp.Compare(a.Account, b.Account), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Status, b.Status),
			cmp.Compare(a.Code, b.Code))
	})
	s.stats.faults.Range(func(k, v any) bool {
		st.Faults[k.(FaultKind)] = v.(*atomic.Int64).Load()
		return true
	})
	s.stats.blackouts.Range(func(k, v any) bool {
		st.Blackouts[k.(string)] = v.(*atomic.Int64).Load()
		return true
	})
	return st
}
