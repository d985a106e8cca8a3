package azsim

import (
	"context"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// raw speaks to one account's queue service without an SDK in between, so that
// tests see and send the bytes themselves. It authorises by bearer token.
type raw struct {
	t  *testing.T
	tr *Transport
	at string // scheme and host
}

func newRaw(t *testing.T, c Config) (raw, *Sim) {
	t.Helper()
	if c.Limits == (Limits{}) {
		c.Limits = NoLimits()
	}
	if len(c.Accounts) == 0 {
		c.Accounts = []Account{{Name: "acct"}}
	}
	s := New(c)
	return raw{t, s.Transport(), "https://" + c.Accounts[0].Name + ".queue.core.windows.net"}, s
}

// seen is what came back.
type seen struct {
	status int
	header http.Header
	body   string
	code   string
}

func (w raw) request(ctx context.Context, method, target, body string, headers ...string) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, w.at+target, strings.NewReader(body))
	must(w.t, err)
	req.Header.Set("Authorization", "Bearer token")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// send does a request; an error is one of the connection.
func (w raw) send(req *http.Request) (seen, error) {
	resp, err := w.tr.Do(req)
	if err != nil {
		return seen{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return seen{}, err
	}
	return seen{resp.StatusCode, resp.Header, string(b), resp.Header.Get("X-Ms-Error-Code")}, nil
}

func (w raw) try(method, target, body string, headers ...string) (seen, error) {
	w.t.Helper()
	return w.send(w.request(w.t.Context(), method, target, body, headers...))
}

func (w raw) do(method, target, body string, headers ...string) seen {
	w.t.Helper()
	a, err := w.try(method, target, body, headers...)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, target, err)
	}
	return a
}

// want does a request and checks its status and error code.
func (w raw) want(status int, code, method, target, body string, headers ...string) seen {
	w.t.Helper()
	a := w.do(method, target, body, headers...)
	if a.status != status || a.code != code {
		w.t.Fatalf("%s %s: %d %q, want %d %q\n%s", method, target, a.status, a.code, status, code, a.body)
	}
	return a
}

// newQueue is newRaw with a queue named queue.
func newQueue(t *testing.T) (raw, *Sim) {
	t.Helper()
	w, s := newRaw(t, Config{})
	w.create("queue")
	return w, s
}

func (w raw) create(queue string) { w.t.Helper(); w.want(201, "", "PUT", "/"+queue, "") }

func text(s string) string {
	return "<QueueMessage><MessageText>" + s + "</MessageText></QueueMessage>"
}

// got is one message of an answer.
type got struct {
	ID       string `xml:"MessageId"`
	Inserted string `xml:"InsertionTime"`
	Expires  string `xml:"ExpirationTime"`
	Receipt  string `xml:"PopReceipt"`
	Next     string `xml:"TimeNextVisible"`
	Dequeued int    `xml:"DequeueCount"`
	Text     string `xml:"MessageText"`
}

func (a seen) messages(t *testing.T) []got {
	t.Helper()
	var list struct {
		XMLName xml.Name `xml:"QueueMessagesList"`
		M       []got    `xml:"QueueMessage"`
	}
	if err := xml.Unmarshal([]byte(strings.TrimPrefix(a.body, bom)), &list); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
	return list.M
}

func (w raw) put(queue, body, query string) got {
	w.t.Helper()
	return w.want(201, "", "POST", "/"+queue+"/messages"+query, text(body)).messages(w.t)[0]
}

func (w raw) get(queue, query string) []got {
	w.t.Helper()
	return w.want(200, "", "GET", "/"+queue+"/messages"+query, "").messages(w.t)
}

func (w raw) peek(queue string) []got {
	w.t.Helper()
	return w.get(queue, "?peekonly=true&numofmessages=32")
}

func (m got) target(queue, query string) string {
	return "/" + queue + "/messages/" + m.ID + "?popreceipt=" + url.QueryEscape(m.Receipt) + query
}

func texts(ms []got) string {
	var s []string
	for _, m := range ms {
		s = append(s, m.Text)
	}
	return strings.Join(s, " ")
}

func sorted(s []string) string {
	slices.Sort(s)
	return strings.Join(s, ", ")
}

// mask replaces what differs from run to run.
func mask(s string) string {
	for _, m := range []struct{ re, to string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "GUID"},
		{`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT`, "TIME"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z`, "ISOTIME"},
		{`<PopReceipt>[A-Za-z0-9+/=]+<`, "<PopReceipt>RECEIPT<"},
	} {
		s = regexp.MustCompile(m.re).ReplaceAllString(s, m.to)
	}
	return s
}

// AZURE.md A1, recordings of Azure/azure-sdk-for-js.
func TestEveryQueueAnswerCarriesTheCommonHeaders(t *testing.T) {
	w, _ := newRaw(t, Config{})
	for _, a := range []seen{
		w.want(201, "", "PUT", "/queue", "", "x-ms-version", "2026-04-06", "x-ms-client-request-id", "mine-1"),
		w.want(404, "QueueNotFound", "GET", "/other?comp=metadata", "", "x-ms-version", "2026-04-06", "x-ms-client-request-id", "mine-1"),
	} {
		proof.Same(t, a.header.Get("Server"), "Windows-Azure-Queue/1.0 Microsoft-HTTPAPI/2.0", "Server")
		proof.Same(t, mask(a.header.Get("x-ms-request-id")), "GUID", "x-ms-request-id")
		proof.Same(t, a.header.Get("x-ms-version"), "2026-04-06", "x-ms-version")
		proof.Same(t, mask(a.header.Get("Date")), "TIME", "Date")
		proof.Same(t, a.header.Get("x-ms-client-request-id"), "mine-1", "x-ms-client-request-id")
	}
}

// learn.microsoft.com/rest/api/storageservices/delete-message2, response headers.
func TestClientRequestIDIsEchoedOnlyIfAtMost1024VisibleCharacters(t *testing.T) {
	w, _ := newRaw(t, Config{})
	for id, want := range map[string]string{
		"a":                       "a",
		strings.Repeat("x", 1024): strings.Repeat("x", 1024),
		strings.Repeat("x", 1025): "",
		"with blank":              "",
		"ümlaut":                  "",
	} {
		a := w.do("GET", "/?comp=list", "", "x-ms-client-request-id", id)
		proof.Same(t, a.header.Get("x-ms-client-request-id"), want, id, "came back as")
	}
}

// AZURE.md A1: bodies start with a byte order mark, on one line.
func TestQueueAnswersAreByteForByteAzures(t *testing.T) {
	w, _ := newQueue(t)
	const prolog = "\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?>"
	stamps := "<MessageId>GUID</MessageId><InsertionTime>TIME</InsertionTime><ExpirationTime>TIME</ExpirationTime>"
	for _, c := range []struct{ name, method, target, body, want string }{
		{"empty", "GET", "/queue/messages", "", prolog + "<QueueMessagesList />"},
		{
			"put", "POST", "/queue/messages", text("a&amp;b&lt;c&gt;\u00e4"),
			prolog + "<QueueMessagesList><QueueMessage>" + stamps +
				"<PopReceipt>RECEIPT</PopReceipt><TimeNextVisible>TIME</TimeNextVisible></QueueMessage></QueueMessagesList>",
		},
		{
			"peek", "GET", "/queue/messages?peekonly=true", "",
			prolog + "<QueueMessagesList><QueueMessage>" + stamps +
				"<DequeueCount>0</DequeueCount><MessageText>a&amp;b&lt;c&gt;\u00e4</MessageText></QueueMessage></QueueMessagesList>",
		},
		{
			"get", "GET", "/queue/messages", "",
			prolog + "<QueueMessagesList><QueueMessage>" + stamps + "<PopReceipt>RECEIPT</PopReceipt><TimeNextVisible>TIME</TimeNextVisible>" +
				"<DequeueCount>1</DequeueCount><MessageText>a&amp;b&lt;c&gt;\u00e4</MessageText></QueueMessage></QueueMessagesList>",
		},
		{
			"error", "GET", "/nosuch/messages", "",
			prolog + "<Error><Code>QueueNotFound</Code><Message>The specified queue does not exist.\nRequestId:GUID\nTime:ISOTIME</Message></Error>",
		},
		{
			"out of range", "GET", "/queue/messages?numofmessages=33", "",
			prolog + "<Error><Code>OutOfRangeQueryParameterValue</Code><Message>One of the query parameters specified in the request URI is outside the permissible range." +
				"\nRequestId:GUID\nTime:ISOTIME</Message><QueryParameterName>numofmessages</QueryParameterName><QueryParameterValue>33</QueryParameterValue>" +
				"<MinimumAllowed>1</MinimumAllowed><MaximumAllowed>32</MaximumAllowed></Error>",
		},
		{
			"bad value", "POST", "/queue/messages?messagettl=5&visibilitytimeout=5", text("x"),
			prolog + "<Error><Code>InvalidQueryParameterValue</Code><Message>Value for one of the query parameters specified in the request URI is invalid." +
				"\nRequestId:GUID\nTime:ISOTIME</Message><QueryParameterName>visibilitytimeout</QueryParameterName><QueryParameterValue>5</QueryParameterValue>" +
				"<Reason>messagettl must be greater than visibilitytimeout</Reason></Error>",
		},
		{
			"list", "GET", "/?comp=list&prefix=que&maxresults=3", "",
			prolog + `<EnumerationResults ServiceEndpoint="https://acct.queue.core.windows.net/"><Prefix>que</Prefix><MaxResults>3</MaxResults>` +
				"<Queues><Queue><Name>queue</Name></Queue></Queues><NextMarker /></EnumerationResults>",
		},
	} {
		a := w.do(c.method, c.target, c.body)
		proof.Same(t, mask(a.body), c.want, c.name)
		proof.Same(t, a.header.Get("Content-Type"), "application/xml", c.name, "Content-Type")
		if s := a.header.Get("Cache-Control"); a.status == 200 && s != "no-cache" {
			t.Errorf("%s: Cache-Control %q", c.name, s)
		}
	}
}

// AZURE.md A5 (Q75) and A3.
func TestRequestsThatCannotBeUnderstoodAreRefused(t *testing.T) {
	w, _ := newQueue(t)
	w.want(400, "InvalidHeaderValue", "GET", "/?comp=list", "", "x-ms-version", "2031-01-01")
	w.want(405, "UnsupportedHttpVerb", "POST", "/queue", "")
	w.want(405, "UnsupportedHttpVerb", "PATCH", "/queue/messages", "")
	w.want(400, "InvalidUri", "GET", "/queue/other/thing", "")
	w.want(405, "UnsupportedHttpVerb", "GET", "/", "")
	w.at = "https://nosuch.queue.core.windows.net"
	w.want(404, "ResourceNotFound", "GET", "/queue/messages", "")
}

func TestARequestBodyBeyondAnyMessageIsRefusedUnread(t *testing.T) {
	w, _ := newQueue(t)
	a := w.want(413, "RequestBodyTooLarge", "POST", "/queue/messages", strings.Repeat("x", maxQueueBody+1))
	proof.Has(t, a.body, "<MaxLimit>65536</MaxLimit>")
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.at+"/queue/messages", io.NopCloser(strings.NewReader(text("x"))))
	must(t, err)
	req.Header.Set("Authorization", "Bearer token")
	resp, err := w.tr.Do(req) // no Content-Length
	must(t, err)
	proof.Same(t, resp.StatusCode, 411, "without a length: …, want 411")
}
