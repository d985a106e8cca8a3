package azsim

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/queuepump/queuepump/internal/proof"
)

// tableBench is one account whose Table service a test works on: with the
// real client, and with requests written by hand.
type tableBench struct {
	*testing.T
	sim     *Sim
	service *aztables.ServiceClient
}

const benchURL = "https://acct.table.core.windows.net"

func newTableBench(t *testing.T, o TableOptions) *tableBench {
	t.Helper()
	s := New(Config{Accounts: []Account{{Name: "acct"}}, Limits: NoLimits(), Tables: o})
	c, err := aztables.NewServiceClientFromConnectionString(s.ConnectionString("acct"), clientOptions(s))
	must(t, err)
	return &tableBench{t, s, c}
}

// newTable is newTableBench with a table named tbl.
func newTable(t *testing.T) *tableBench {
	t.Helper()
	b := newTableBench(t, TableOptions{})
	b.table("tbl")
	return b
}

func clientOptions(s *Sim) *aztables.ClientOptions {
	return &aztables.ClientOptions{ClientOptions: once(s.Transport())}
}

// table makes a table and returns its client.
func (b *tableBench) table(name string) *aztables.Client {
	b.Helper()
	must(b, errOf(b.service.CreateTable(b.Context(), name, nil)))
	return b.service.NewClient(name)
}

// answer is a reply as it came over the wire.
type answer struct {
	status int
	header http.Header
	body   string
}

// code is the error code of the JSON body.
func (a answer) code() string {
	var e struct {
		Error struct{ Code string } `json:"odata.error"`
	}
	_ = json.Unmarshal([]byte(a.body), &e)
	return e.Error.Code
}

// do sends a request written by hand. headers are "Name: value"; those the
// real client always sends are there unless named. path is appended as it is.
func (b *tableBench) do(method, path, body string, headers ...string) answer {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, benchURL+path, strings.NewReader(body))
	must(b, err)
	req.Header.Set("Authorization", "Bearer any")
	req.Header.Set("X-Ms-Version", "2019-02-02")
	req.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
	req.Header.Set("DataServiceVersion", "3.0")
	req.Header.Set("Accept", "application/json;odata=minimalmetadata")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	set := make(map[string]bool)
	for _, h := range headers {
		name, text, _ := strings.Cut(h, ":")
		text = strings.TrimSpace(text)
		switch {
		case text == "":
			req.Header.Del(name)
		case set[name]:
			req.Header.Add(name, text)
		default:
			req.Header.Set(name, text)
		}
		set[name] = true
	}
	resp, err := b.sim.Transport().Do(req)
	must(b, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(b, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// want checks status and error code ("" for none).
func (b *tableBench) want(a answer, status int, code string) {
	b.Helper()
	proof.Same(b, a.status, status, a.body)
	proof.Same(b, a.code(), code, a.body)
}

// wantCode checks the error of the real client: its status, and the code that
// it found.
func wantCode(t *testing.T, err error, status int, code string) {
	t.Helper()
	e, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		t.Fatalf("error is %v, want %d %s", err, status, code)
	}
	if e.StatusCode != status || e.ErrorCode != code {
		t.Fatalf("error is %d %s, want %d %s", e.StatusCode, e.ErrorCode, status, code)
	}
}

var guidForm = regexp.MustCompile(`(RequestId:|response_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// masked replaces what differs from run to run in an answer: request ids, the
// boundaries of batches.
func masked(s string) string {
	return guidForm.ReplaceAllString(s, "${1}GUID")
}

// pages reads every page of a query through the real client.
func (b *tableBench) pages(c *aztables.Client, o *aztables.ListEntitiesOptions) [][]map[string]any {
	b.Helper()
	var pages [][]map[string]any
	for p := c.NewListEntitiesPager(o); p.More(); {
		resp, err := p.NextPage(b.Context())
		must(b, err)
		page := []map[string]any{}
		for _, text := range resp.Entities {
			var row map[string]any
			must(b, json.Unmarshal(text, &row))
			page = append(page, row)
		}
		pages = append(pages, page)
	}
	return pages
}
