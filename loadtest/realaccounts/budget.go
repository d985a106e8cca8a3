package realaccounts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/queuepump/queuepump/pump/prices"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// errSpent is why a request was not sent, and why a run ends early.
var errSpent = errors.New("the budget of requests is spent")

// budget counts the requests of a run, on all accounts and of all processes, and refuses those
// beyond it. A part of it is kept for removing what the run has made.
type budget struct {
	most, reserve int64
	spent         func() // called when the first request was refused

	mu     sync.Mutex // guards what follows
	used   int64
	counts map[counted]int64
}

// counted is what requests are counted by.
type counted struct {
	part, account, operation string
	status                   int // 0: no answer
}

func newBudget(most, reserve int64, spent func()) *budget {
	return &budget{most: most, reserve: reserve, spent: spent, counts: map[counted]int64{}}
}

// take takes one request out of the budget, or says that it is spent.
func (b *budget) take(part, operation string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.most - b.reserve
	if part == partClean || operation == "DeleteQueue" || operation == "DeleteTable" {
		most = b.most
	}
	if b.used >= most {
		b.spent()
		return errSpent
	}
	b.used++
	return nil
}

func (b *budget) note(c counted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[c]++
}

// usage is what was used of the budget.
func (b *budget) usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := Usage{
		Most: b.most, Used: b.used, Parts: map[string]int64{}, Accounts: map[string]int64{},
		Currency: prices.Published.Currency, Prices: prices.Published.Source,
	}
	for c, n := range b.counts {
		u.Parts[c.part] += n
		u.Accounts[c.account] += n
		u.Cost += cost(c.operation, n)
	}
	u.Operations = operationsOf(b.counts)
	return u
}

func operationsOf(counts map[counted]int64) (list []Operation) {
	by := map[string]int64{}
	for c, n := range counts {
		answer := fmt.Sprint(c.status)
		if c.status == 0 {
			answer = "no answer"
		}
		by[c.operation+" "+answer] += n
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		operation, answer, _ := strings.Cut(name, " ")
		list = append(list, Operation{Operation: operation, Answer: answer, Requests: by[name]})
	}
	return list
}

// of counts the requests of a part: those to queues, those to tables, and what they cost.
func (b *budget) of(part string) (queues, tables int64, money float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, n := range b.counts {
		if c.part != part {
			continue
		}
		if queueOperations[c.operation] {
			queues += n
		} else {
			tables += n
		}
		money += cost(c.operation, n)
	}
	return queues, tables, money
}

// created counts the queues and tables that were made, or that may have been.
func (b *budget) created() (queues, tables int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, n := range b.counts {
		if c.status/100 != 2 && c.status != 0 {
			continue
		}
		switch c.operation {
		case "CreateQueue":
			queues += n
		case "CreateTable":
			tables += n
		}
	}
	return queues, tables
}

// cost is what requests cost by the list prices that `distributor plan` knows.
func cost(operation string, n int64) float64 {
	price := prices.Published.Table
	if queueOperations[operation] {
		price = prices.Published.Queue
	}
	return float64(n) / 10_000 * price
}

// most is the price of so many requests if each is of the dearest kind.
func mostCost(n int64) float64 {
	return float64(n) / 10_000 * max(prices.Published.Queue, prices.Published.Table)
}

// meter is a transport under the budget.
type meter struct {
	*budget
	next          storagetest.Doer
	part, account string
	queues        string // the addresses of the services
	tables        string
}

// Do sends a request if the budget has room for it.
func (m *meter) Do(req *http.Request) (*http.Response, error) {
	operation := operationOf(req, m.queues, m.tables)
	if err := m.take(m.part, operation); err != nil {
		return nil, err
	}
	resp, err := m.next.Do(req)
	c := counted{part: m.part, account: m.account, operation: operation}
	if err == nil {
		c.status = resp.StatusCode
	}
	m.note(c)
	return resp, err
}

var queueOperations = map[string]bool{
	"ListQueues": true, "CreateQueue": true, "DeleteQueue": true, "GetQueueMetadata": true,
	"PutMessage": true, "GetMessages": true, "PeekMessages": true, "ClearMessages": true,
	"UpdateMessage": true, "DeleteMessage": true, "OtherQueue": true,
}

// operationOf names the operation of a request as Azure's REST reference does, without blanks.
func operationOf(req *http.Request, queues, tables string) string {
	if path, ok := below(req.URL, queues); ok {
		return queueOperation(req, path)
	}
	path, _ := below(req.URL, tables)
	return tableOperation(req.Method, path)
}

// below gives the path of an address below that of a service.
func below(u *url.URL, service string) (string, bool) {
	s, err := url.Parse(service)
	if err != nil || !strings.EqualFold(s.Host, u.Host) {
		return u.Path, false
	}
	return strings.Trim(strings.TrimPrefix(u.Path, s.Path), "/"), true
}

func queueOperation(req *http.Request, path string) string {
	parts := strings.Split(path, "/")
	names := map[string]string{}
	switch {
	case path == "":
		names = map[string]string{"GET": "ListQueues"}
	case len(parts) == 1:
		names = map[string]string{
			"PUT": "CreateQueue", "DELETE": "DeleteQueue", "GET": "GetQueueMetadata",
		}
	case len(parts) == 2:
		names = map[string]string{"POST": "PutMessage", "GET": "GetMessages", "DELETE": "ClearMessages"}
		if req.URL.Query().Get("peekonly") == "true" {
			names["GET"] = "PeekMessages"
		}
	case len(parts) == 3:
		names = map[string]string{"PUT": "UpdateMessage", "DELETE": "DeleteMessage"}
	}
	return cmp.Or(names[req.Method], "OtherQueue")
}

func tableOperation(method, path string) string {
	var names map[string]string
	switch {
	case path == "Tables":
		names = map[string]string{"GET": "QueryTables", "POST": "CreateTable"}
	case strings.HasPrefix(path, "Tables("):
		names = map[string]string{"DELETE": "DeleteTable"}
	case path == "$batch":
		names = map[string]string{"POST": "Batch"}
	case strings.HasSuffix(path, "()"):
		names = map[string]string{"GET": "QueryEntities"}
	case strings.HasSuffix(path, ")"):
		names = map[string]string{
			"GET": "GetEntity", "PUT": "UpdateEntity", "PATCH": "MergeEntity", "MERGE": "MergeEntity",
			"DELETE": "DeleteEntity",
		}
	default:
		names = map[string]string{"POST": "InsertEntity", "GET": "QueryEntities"}
	}
	return cmp.Or(names[method], "OtherTable")
}
