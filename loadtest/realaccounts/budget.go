package realaccounts

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// errSpent is why a request was not sent, and why a run ends early.
var errSpent = errors.New("the budget of requests is spent")

// The parts of a run, in order: each is a test below TestAccounts. After all of them the run
// removes what they have made.
const (
	partConformance = "conformance"
	partRules       = "rules"
	partLimits      = "limits"
	partFigures     = "figures"
	partPump        = "pump"
	partKill        = "kill"
	partBlobs       = "blobs"
	partRefusals    = "refusals"
	partClean       = "clean"
)

var parts = []string{
	partConformance, partRules, partLimits, partFigures, partPump, partKill, partBlobs, partRefusals,
}

// allowance is what a part may come to, in requests, on accounts that answer: three times what it
// was on the simulator, because queues are asked for as long as something is awaited.
var allowance = map[string]int64{
	partConformance: 9_000, partRules: 1_500, partLimits: 22_000, partFigures: 700, partPump: 4_000,
	partKill: 9_000, partBlobs: 9_000, partRefusals: 9_000,
}

// reserve is the part that is kept for removing.
const reserve = 3_000

// removing are the requests for which the reserve is kept.
var removing = []string{"DeleteQueue", "DeleteTable", "DeleteContainer"}

// defaultRequests is the budget of a run of all parts.
func defaultRequests() (n int64) {
	for _, part := range parts {
		n += allowance[part]
	}
	return n + reserve
}

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

// take takes one request out of the budget, or says that it is spent. A put or a list of blobs is
// taken as the requests to a queue that cost as much.
func (b *budget) take(part, operation string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.most - b.reserve
	if part == partClean || slices.Contains(removing, operation) {
		most = b.most
	}
	if b.used >= most {
		b.spent()
		return errSpent
	}
	b.used += int64(math.Ceil(cost(operation, 1) / cost("PutMessage", 1)))
	return nil
}

func (b *budget) note(c counted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[c]++
}

// sum counts requests that were made: those to queues, the others, and what they cost.
func (b *budget) sum(which func(counted) bool) (queues, others int64, money float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, n := range b.counts {
		switch {
		case !which(c):
			continue
		case ofQueues(c.operation):
			queues += n
		default:
			others += n
		}
		money += cost(c.operation, n)
	}
	return queues, others, money
}

// of gives the requests of a part and their cost.
func (b *budget) of(part string) (queues, others int64, money float64) {
	return b.sum(func(c counted) bool { return c.part == part })
}

// created counts what a kind of request has made, or may have made.
func (b *budget) created(operation string) int64 {
	queues, tables, _ := b.sum(func(c counted) bool {
		return c.operation == operation && (c.status/100 == 2 || c.status == 0)
	})
	return queues + tables
}

// operations are how often each kind of request was answered how, in rows of a table.
func (b *budget) operations() (rows [][]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := map[[2]string]int64{}
	for c, n := range b.counts {
		answer := fmt.Sprint(c.status)
		if c.status == 0 {
			answer = "no answer"
		}
		by[[2]string{c.operation, answer}] += n
	}
	for key, n := range by {
		rows = append(rows, []string{key[0], key[1], fmt.Sprint(n)})
	}
	slices.SortFunc(rows, slices.Compare)
	return rows
}

// cost is what requests cost by the list prices that `distributor plan` knows.
func cost(operation string, n int64) float64 {
	kind := "read" // of a table
	switch operation {
	case "PutBlob", "ListBlobs", "ListContainers", "CreateContainer":
		kind = "put-blob"
	default:
		if ofQueues(operation) || operation == "GetBlob" {
			kind = "get"
		}
	}
	return float64(n) * pump.Prices{}.OrPublished().Of(kind)
}

// mostCost is the price of so many requests if each is of the dearest kind.
func mostCost(n int64) float64 {
	list := pump.Prices{}.OrPublished()
	return float64(n) / 10_000 * max(list.Queue, list.Table)
}

// meter is a transport under the budget.
type meter struct {
	*budget
	next storagetest.Doer
	part string
	t    *target
}

// meter puts a transport to an account under the budget, for a part of a run.
func (b *budget) meter(next storagetest.Doer, t *target, part string) *meter {
	return &meter{b, next, part, t}
}

// Do sends a request if the budget has room for it.
func (m *meter) Do(req *http.Request) (*http.Response, error) {
	operation := operationOf(req, m.t)
	if err := m.take(m.part, operation); err != nil {
		return nil, err
	}
	if m.t.spoiled.Load() {
		spoil(req)
	}
	resp, err := m.next.Do(req)
	c := counted{part: m.part, account: m.t.name, operation: operation}
	if err == nil {
		c.status = resp.StatusCode
	}
	m.note(c)
	return resp, err
}

// spoil makes the credential of a request wrong, as one is that was replaced.
func spoil(req *http.Request) {
	wrong := base64.StdEncoding.EncodeToString(make([]byte, sha256.Size))
	query := req.URL.Query()
	if query.Has("sig") {
		query.Set("sig", wrong)
		req.URL.RawQuery = query.Encode()
	} else { // "SharedKey NAME:SIGNATURE", or "Bearer TOKEN"
		who, _, _ := strings.Cut(req.Header.Get("Authorization"), ":")
		req.Header.Set("Authorization", who+":"+wrong)
	}
}

// ofQueues reports whether an operation is of the queue service.
func ofQueues(operation string) bool {
	return strings.Contains(operation, "Queue") || strings.Contains(operation, "Message")
}

// operationOf names the operation of a request as Azure's REST reference does, without blanks.
func operationOf(req *http.Request, t *target) string {
	if path, ok := below(req.URL, t.queues); ok {
		return queueOperation(req, path)
	}
	if path, ok := below(req.URL, t.blobs); ok && t.blobs != "" {
		return blobOperation(req.Method, path)
	}
	path, _ := below(req.URL, t.tables)
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

func blobOperation(method, path string) string {
	names := map[string]string{"PUT": "PutBlob", "GET": "GetBlob", "DELETE": "DeleteBlob"}
	if path == "" {
		return "ListContainers"
	} else if !strings.Contains(path, "/") {
		names = map[string]string{
			"PUT": "CreateContainer", "GET": "ListBlobs", "DELETE": "DeleteContainer",
		}
	}
	return cmp.Or(names[method], "OtherBlob")
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
