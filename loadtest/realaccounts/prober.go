package realaccounts

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/queuepump/queuepump/pump/storage"
)

// asker is the driver of a real account, asked what package storage does not ask.
type asker interface {
	Ask(ctx context.Context, service string, req *http.Request) (*http.Response, error)
}

// question is a request that a rule is about.
type question struct {
	service string // "table" or "blob"; that of queues if empty
	method  string // GET if empty
	path    string // below the address of the service
	query   url.Values
	header  map[string]string
	body    string
}

// reply is its answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// ask sends a request. An error means that there was no answer.
func ask(ctx context.Context, a asker, q question) (reply, error) {
	req := &http.Request{
		Method: q.method, URL: &url.URL{Path: q.path, RawQuery: q.query.Encode()}, Header: http.Header{},
	}
	if q.method == "" {
		req.Method = http.MethodGet
	}
	if q.service == "table" {
		req.Header.Set("Accept", "application/json;odata=minimalmetadata")
	}
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	if q.body != "" {
		req.Body = io.NopCloser(strings.NewReader(q.body))
	}
	resp, err := a.Ask(ctx, q.service, req)
	if err != nil {
		return reply{}, err
	}
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, body}, err
}

// code is the service's own code of an error.
func (r reply) code() string {
	if code := r.header.Get("x-ms-error-code"); code != "" {
		return code
	}
	var x struct{ Code string }
	if xml.Unmarshal(trimMark(r.body), &x) == nil && x.Code != "" {
		return x.Code
	}
	var j struct {
		Error struct{ Code string } `json:"odata.error"`
	}
	_ = json.Unmarshal(r.body, &j)
	return j.Error.Code
}

func trimMark(body []byte) []byte { return []byte(strings.TrimPrefix(string(body), "\ufeff")) }

// answer is the status and the code in words that two services can be compared by.
func (r reply) answer() string {
	if r.status < 300 {
		return fmt.Sprint(r.status)
	}
	if code := r.code(); code != "" {
		return fmt.Sprintf("%d %s", r.status, code)
	}
	return fmt.Sprintf("%d without a code", r.status)
}

// parts are what the parts of a batch's answer say, for a comparison.
var (
	partStatus = regexp.MustCompile(`HTTP/1\.1 (\d+)`)
	partCode   = regexp.MustCompile(`"code":\s*"(\w+)"`)
	partIndex  = regexp.MustCompile(`"value":\s*"(\d+):`)
)

// batchAnswer is the answer to a batch: its own status, and what the parts say.
func (r reply) batchAnswer() string {
	if r.status != http.StatusAccepted {
		return r.answer()
	}
	var within []string
	for _, m := range partStatus.FindAllSubmatch(r.body, -1) {
		within = append(within, string(m[1]))
	}
	parts := len(within)
	text := "202 with " + strings.Join(slices.Compact(within), " ")
	if parts > 1 {
		text += fmt.Sprintf(" x %d", parts)
	}
	if m := partCode.FindSubmatch(r.body); m != nil {
		text += " " + string(m[1])
		if i := partIndex.FindSubmatch(r.body); i != nil {
			text += ", which names change " + string(i[1])
		} else {
			text += ", which names no change"
		}
	}
	return text
}

// prober asks one of the two sides: the account, or the simulator.
type prober struct {
	account opened
	prefix  string
	keyed   bool // signed by a key: dates count
	hosted  bool // the account's name is in its host's name
	pinned  bool // each request is sent with one version, even if a rule asks for another

	pace     pace // of the rules that need load
	load     loadOnce
	numbered atomic.Int64
}

// name gives a name for a queue or a table that no other has.
func (p *prober) name() string {
	return fmt.Sprintf("%sr%d", p.prefix, p.numbered.Add(1))
}

// queue makes a queue.
func (p *prober) queue(ctx context.Context) (storage.Queue, error) {
	q := p.account.Queue(p.name())
	return q, q.Create(ctx)
}

// table makes a table.
func (p *prober) table(ctx context.Context) (storage.Table, error) {
	t := p.account.Table(p.name())
	return t, t.Create(ctx)
}

func (p *prober) ask(ctx context.Context, q question) (reply, error) {
	return ask(ctx, p.account, q)
}

// answer asks and gives the answer in words.
func (p *prober) answer(ctx context.Context, q question) (string, error) {
	re, err := p.ask(ctx, q)
	return re.answer(), err
}

// text is the body of a put or an update of a message.
func text(s string) string {
	return "<QueueMessage><MessageText>" + s + "</MessageText></QueueMessage>"
}

// xmlHeader and jsonHeader are the headers of bodies.
var (
	xmlHeader  = map[string]string{"Content-Type": "application/xml"}
	jsonHeader = map[string]string{"Content-Type": "application/json"}
)

// insert is the question that inserts an entity.
func insert(table string, entity map[string]any) question {
	body, _ := json.Marshal(entity) // of strings and numbers only
	return question{
		service: "table", method: http.MethodPost, path: "/" + table, header: jsonHeader,
		body: string(body),
	}
}

// change is a change of a batch.
type change struct {
	table, partition, row string
	fill                  string // a property besides the keys
}

// batch is the question that inserts entities in one transaction.
func (p *prober) batch(changes ...change) question {
	var b strings.Builder
	b.WriteString("--batch_trial\r\nContent-Type: multipart/mixed; boundary=changeset_trial\r\n\r\n")
	base := strings.TrimSuffix(p.account.TableEndpoint(), "/")
	for _, c := range changes {
		entity := map[string]any{"PartitionKey": c.partition, "RowKey": c.row}
		for i := 0; i*fillChunk < len(c.fill); i++ {
			entity[fmt.Sprint("F", i)] = c.fill[i*fillChunk : min(len(c.fill), (i+1)*fillChunk)]
		}
		body, _ := json.Marshal(entity)
		b.WriteString("--changeset_trial\r\nContent-Type: " +
			"application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n")
		fmt.Fprintf(&b, "POST %s/%s HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n",
			base, c.table)
		b.WriteString("Content-Type: application/json\r\nDataServiceVersion: 3.0\r\nPrefer: " +
			"return-no-content\r\n\r\n")
		b.Write(body)
		b.WriteString("\r\n")
	}
	b.WriteString("--changeset_trial--\r\n--batch_trial--\r\n")
	return question{
		service: "table", method: http.MethodPost, path: "/$batch", body: b.String(),
		header: map[string]string{
			"Content-Type": "multipart/mixed; boundary=batch_trial", "DataServiceVersion": "3.0",
		},
	}
}

// fillChunk is what one property of a change holds: less than the 32 Ki characters it may.
const fillChunk = 30_000
