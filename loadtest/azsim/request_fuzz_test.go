package azsim

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// fuzzWorld is an account with a queue of two messages, one of them in hand, and a table of two
// rows.
func fuzzWorld(t *testing.T) *Sim {
	s := New(Config{Accounts: []Account{{Name: "acct"}}, Limits: NoLimits()})
	for _, step := range []struct{ service, method, target, body string }{
		{"queue", "PUT", "/acct/queue", ""},
		{"queue", "POST", "/acct/queue/messages", "<QueueMessage><MessageText>one</MessageText></QueueMessage>"},
		{"queue", "POST", "/acct/queue/messages", "<QueueMessage><MessageText>two</MessageText></QueueMessage>"},
		{"queue", "GET", "/acct/queue/messages", ""},
		{"table", "POST", "/acct/Tables", `{"TableName":"tbl"}`},
		{"table", "POST", "/acct/tbl", `{"PartitionKey":"p","RowKey":"1","A":1}`},
		{"table", "POST", "/acct/tbl", `{"PartitionKey":"p","RowKey":"2","B":"two"}`},
	} {
		if a, _ := fuzzSend(t, s, step.service == "table", step.method, step.target, "", []byte(step.body)); a.Code >= 300 {
			t.Fatalf("%+v: %d %s", step, a.Code, a.Body)
		}
	}
	return s
}

// fuzzSend serves a request as a listening server would. It gives nil for what no
// server reads, and whether the connection was broken off instead of an answer.
func fuzzSend(t *testing.T, s *Sim, table bool, method, target, headers string, body []byte) (a *httptest.ResponseRecorder, broken bool) {
	t.Helper()
	text := method + " " + target + " HTTP/1.1\r\nHost: 127.0.0.1:10001\r\n" + headers + "\r\n"
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return nil, false
	}
	if req.Header.Get("Authorization") == "" && !strings.Contains(req.URL.RawQuery, "sig=") {
		req.Header.Set("Authorization", "Bearer token")
	}
	for _, name := range []string{"Content-Type", "Accept"} {
		if table && req.Header.Get(name) == "" {
			req.Header.Set(name, "application/json")
		}
	}
	req.RemoteAddr = "127.0.0.1:4711"
	req.ContentLength, req.Body = int64(len(body)), io.NopCloser(bytes.NewReader(body))
	h := s.QueueHandler()
	if table {
		h = s.TableHandler()
	}
	a = httptest.NewRecorder()
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(r)
			}
			broken = true
		}
	}()
	h.ServeHTTP(a, req)
	return a, false
}

// FuzzRequest: whatever a request says, it is answered, by a document that is
// whole, with an error's code where it is refused; and what it may allocate is
// in proportion to what it sent.
func FuzzRequest(f *testing.F) {
	for _, s := range []struct {
		table                         bool
		method, target, headers, body string
	}{
		{false, "GET", "/acct?comp=list&prefix=q&include=metadata&maxresults=1&marker=/acct/queue", "", ""},
		{false, "PUT", "/acct/other", "x-ms-meta-a: b\r\n", ""},
		{false, "GET", "/acct/queue/messages?numofmessages=32&visibilitytimeout=7", "x-ms-version: 2021-12-02\r\n", ""},
		{false, "GET", "/acct/queue/messages?peekonly=true", "x-ms-client-request-id: me\r\n", ""},
		{false, "POST", "/acct/queue/messages?messagettl=-1&visibilitytimeout=1", "", "<QueueMessage><MessageText>a&amp;b</MessageText></QueueMessage>"},
		{false, "PUT", "/acct/queue/messages/00000000-0000-4000-8000-000000000000?popreceipt=AgAAAAMAAAAAAAAA&visibilitytimeout=0", "", ""},
		{false, "DELETE", "/acct/queue/messages/00000000-0000-4000-8000-000000000000?popreceipt=AgAAAAMAAAAAAAAA", "", ""},
		{false, "PUT", "/acct/queue?comp=acl", "", "<SignedIdentifiers><SignedIdentifier><Id>i</Id><AccessPolicy><Start>2024-01-01</Start><Expiry>2034-01-01T00:00:00.0000000Z</Expiry><Permission>raup</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>"},
		{false, "PUT", "/acct?restype=service&comp=properties", "", "<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods><MaxAgeInSeconds>5</MaxAgeInSeconds><ExposedHeaders/><AllowedHeaders/></CorsRule></Cors></StorageServiceProperties>"},
		{false, "GET", "/acct/queue?comp=metadata&sv=2019-02-02&sp=r&se=2034-01-01&sig=abc", "", ""},
		{false, "GET", "/acct/queue?comp=metadata", "Authorization: SharedKey acct:abcd\r\nx-ms-date: Wed, 01 Jan 2025 00:00:00 GMT\r\n", ""},
		{true, "GET", "/acct/Tables?$filter=TableName%20ge%20'a'", "Accept: application/json;odata=fullmetadata\r\n", ""},
		{true, "GET", "/acct/tbl()?$filter=PartitionKey%20eq%20'p'&$select=A&$top=1", "Accept: application/json;odata=nometadata\r\n", ""},
		{true, "GET", "/acct/tbl(PartitionKey='p',RowKey='1')", "", ""},
		{true, "POST", "/acct/tbl", "Prefer: return-no-content\r\n", `{"PartitionKey":"p","RowKey":"3","L@odata.type":"Edm.Int64","L":"9007199254740993","B@odata.type":"Edm.Binary","B":"AAEC","D@odata.type":"Edm.Double","D":"NaN","T@odata.type":"Edm.DateTime","T":"2024-01-01T00:00:00Z","G@odata.type":"Edm.Guid","G":"4185404a-5818-48c3-b9be-f217df0dba6f","X":null}`},
		{true, "MERGE", "/acct/tbl(PartitionKey='p',RowKey='1')", "If-Match: *\r\n", `{"A":2}`},
		{true, "PUT", "/acct/tbl(PartitionKey='p',RowKey='2')", "If-Match: W/\"datetime'2024-01-01T00%3A00%3A00Z'\"\r\n", `{"C":2.5}`},
		{true, "DELETE", "/acct/tbl(PartitionKey='p',RowKey='1')", "If-Match: *\r\n", ""},
		{true, "POST", "/acct/Tables", "", `{"TableName":"another"}`},
	} {
		f.Add(s.table, s.method, s.target, s.headers, []byte(s.body))
	}
	f.Fuzz(func(t *testing.T, table bool, method, target, headers string, body []byte) {
		s := fuzzWorld(t)
		var a *httptest.ResponseRecorder
		var broken bool
		proof.AtMost(t, 4<<20+256*(len(body)+len(target)+len(headers)), func() {
			a, broken = fuzzSend(t, s, table, method, target, headers, body)
		})
		if a == nil {
			return
		}
		if broken {
			t.Fatal("the connection was broken off")
		}
		answer := bytes.TrimPrefix(a.Body.Bytes(), []byte(bom))
		switch kind := a.Header().Get("Content-Type"); {
		case a.Code < 200 || a.Code > 599:
			t.Fatalf("status %d", a.Code)
		case a.Header().Get("X-Ms-Request-Id") == "":
			t.Fatal("an answer without a request id")
		case len(answer) == 0:
		case strings.HasPrefix(kind, "application/xml"), strings.HasPrefix(kind, "application/atom+xml"):
			d := xml.NewDecoder(bytes.NewReader(answer))
			for {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%v in %q", err, answer)
				}
			}
		case strings.HasPrefix(kind, "application/json"):
			if !json.Valid(answer) {
				t.Fatalf("no JSON: %q", answer)
			}
		}
		if a.Code >= 400 && method != http.MethodHead && !table && a.Header().Get("X-Ms-Error-Code") == "" {
			t.Fatalf("status %d without a code", a.Code)
		}
	})
}

// FuzzSAS: a token that is signed is only let in within its times and for what
// its permissions say, and no other signature than its own is let in.
func FuzzSAS(f *testing.F) {
	f.Add("sv=2019-02-02&sp=p&se=2034-01-01", false)
	f.Add("sv=2019-02-02&sp=raup&st=2023-01-01&se=2034-01-01T00:00:00Z&sip=127.0.0.1-127.0.0.9&spr=https", false)
	f.Add("sv=2020-12-06&ss=qt&srt=sco&sp=rwdlacup&se=2034-01-01&ses=scope", false)
	f.Add("sv=2019-02-02&si=policy", true)
	f.Add("sv=2019-02-02&sp=p&se=2034-01-01", true)
	now := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, query string, forged bool) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		s := New(Config{Accounts: []Account{{Name: "acct"}}, Limits: NoLimits()})
		a := s.accounts["acct"]
		r := &request{method: "GET", path: "/queue/messages", query: q, header: http.Header{}, account: a, service: queueService, id: "id", now: now}
		op := &operation{name: "GetMessages", object: "queue", permission: "p", accountPermission: "p", resource: 'o'}
		text := r.serviceStringToSign(op)
		if q.Has("srt") || q.Has("ss") {
			text = r.accountStringToSign()
		}
		sum := a.mac.Load().sum(nil, text)
		if forged {
			sum[0] ^= 1
		}
		q.Set("sig", base64.StdEncoding.EncodeToString(sum))
		c := &call{from: netip.MustParseAddr("127.0.0.1"), secure: strings.HasPrefix(q.Get("spr"), "h")}
		refused := r.authoriseSAS(c, op)
		if refused != nil {
			if refused.status != http.StatusForbidden && refused.status != http.StatusBadRequest {
				t.Fatalf("status %d", refused.status)
			}
			return
		}
		expiry, ok := parseSASTime(q.Get("se"))
		start, _ := parseSASTime(q.Get("st"))
		if forged || !ok || !expiry.After(now) || start.After(now) || !strings.Contains(q.Get("sp"), "p") {
			t.Fatalf("%q was let in, forged: %t", query, forged)
		}
	})
}

// FuzzLimits: limits that are read can be enforced, and are written and read
// again as they are.
func FuzzLimits(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"queue": 2000, "queueAccount": 20000, "tablePartition": 2000, "tableAccount": "none", "getCost": 32, "queryCost": 1, "burst": "100ms", "retryAfter": "1s", "timedOut": 0.5}`))
	f.Add([]byte(`{"queue":1e308,"getCost":1,"queryCost":1000}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := ParseLimits(data)
		if err != nil {
			if len(err.Error()) > 2*len(data)+1000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		New(Config{Limits: l}) // panics if they are not valid
		again, err := json.Marshal(l)
		must(t, err)
		twice, err := ParseLimits(again)
		if err != nil || !reflect.DeepEqual(l, twice) {
			t.Fatalf("%s: %+v, then %+v, %v", again, l, twice, err)
		}
	})
}

// FuzzPolicies: stored access policies that are taken are written and read
// again as they are, and the queries of clients are read without order mattering.
func FuzzPolicies(f *testing.F) {
	f.Add([]byte("<SignedIdentifiers><SignedIdentifier><Id>i</Id><AccessPolicy><Start>2024-01-01</Start><Expiry>2034-01-01T00:00:00.0000000Z</Expiry><Permission>raup</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>"))
	f.Add([]byte("<SignedIdentifiers><SignedIdentifier><Id>a&#13;b</Id></SignedIdentifier></SignedIdentifiers>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		acl, err := parseACL(body, "raup")
		if err != nil {
			return
		}
		again, err := parseACL(renderACL(acl), "raup")
		if err != nil || !slices.Equal(acl, again) {
			t.Fatalf("%+v, then %+v, %v", acl, again, err)
		}
		q, _ := url.ParseQuery(string(body)) // as much of it as can be read
		back, _ := url.ParseQuery(q.Encode())
		if !maps.EqualFunc(q, back, slices.Equal) {
			t.Fatalf("%v, then %v", q, back)
		}
	})
}
