package azure

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// TestAskSendsWhatTheCallerWrites, signed as the driver's own requests are, and gives the answer
// whatever its status.
func TestAskSendsWhatTheCallerWrites(t *testing.T) {
	t.Parallel()
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "acct"}}})
	sas := accountSAS(t, sim, time.Now().Add(time.Hour), "rwdlacup")
	for name, o := range map[string]Options{
		"key":       {ConnectionString: sim.ConnectionString("acct"), Transport: sim.Transport()},
		"signature": {Endpoint: "https://acct.queue.core.windows.net/?" + sas, Transport: sim.Transport()},
		"token":     {Endpoint: "https://acct.queue.core.windows.net", Credential: &issuer{lasts: time.Hour}, Transport: sim.Transport()},
	} {
		opened, err := Open(o)
		must(t, err)
		a := opened.(*account)
		must(t, errors.Join(a.Queue("queue").Create(t.Context()), a.Table("table1").Create(t.Context())))
		old := http.Header{"X-Ms-Version": {"2019-02-03"}}
		for _, c := range []struct {
			service            string
			method, path, body string
			query              url.Values
			header             http.Header
			status             int
			says               string
		}{
			{method: "GET", path: "/", query: url.Values{"comp": {"list"}}, status: 200, says: "<Name>queue</Name>"},
			{method: "GET", path: "/", query: url.Values{"comp": {"list"}}, header: old, status: 400, says: "InvalidHeaderValue"},
			{method: "POST", path: "/queue/messages", body: "<QueueMessage><MessageText>x", header: http.Header{"Content-Type": {"application/xml"}}, status: 400, says: "InvalidXmlDocument"},
			{method: "GET", path: "/queue/messages", query: url.Values{"numofmessages": {"33"}}, status: 400, says: "OutOfRange"},
			{service: "table", method: "GET", path: "/table1()", query: url.Values{"$top": {"0"}}, status: 400, says: "InvalidInput"},
			{service: "table", method: "DELETE", path: "/table1(PartitionKey='p',RowKey='r')", header: http.Header{"If-Match": {"*"}}, status: 404, says: "ResourceNotFound"},
			{service: "blob", method: "PUT", path: "/box-" + name, query: url.Values{"restype": {"container"}}, status: 201},
			{service: "blob", method: "GET", path: "/", query: url.Values{"comp": {"list"}, "prefix": {"box-"}}, status: 200, says: "<Name>box-" + name + "</Name>"},
			{service: "blob", method: "DELETE", path: "/box-" + name, query: url.Values{"restype": {"container"}}, status: 202},
			{service: "table", method: "GET", path: "/Tables", header: old, status: 400, says: "InvalidHeaderValue"},
		} {
			req := &http.Request{Method: c.method, URL: &url.URL{Path: c.path, RawQuery: c.query.Encode()}, Header: c.header}
			if c.body != "" {
				req.Body = io.NopCloser(strings.NewReader(c.body))
			}
			resp, err := a.Ask(t.Context(), c.service, req)
			if err != nil {
				t.Errorf("%s: %s %s: %v", name, c.method, c.path, err)
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status || !strings.Contains(string(body), c.says) {
				t.Errorf("%s: %s %s: %d %s, want %d %s", name, c.method, c.path, resp.StatusCode, body, c.status, c.says)
			}
		}
	}
}

func TestAskSaysWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	list := &http.Request{Method: "GET", URL: &url.URL{Path: "/"}}
	without, err := Open(Options{Endpoint: "https://127.0.0.1:8443/acct?sv=1&sig=c2VjcmV0", Transport: &fake{}})
	must(t, err)
	proof.Says(t, proof.ErrOf(without.(*account).Ask(t.Context(), "table", list)), "tableEndpoint", "without tables")
	broken, err := Open(Options{Endpoint: "https://acct.queue.core.windows.net/?sv=1&sig=c2VjcmV0", Transport: &fake{err: errors.New("cut off at sig=c2VjcmV0")}})
	must(t, err)
	if _, err := broken.(*account).Ask(t.Context(), "queue", list); err == nil || strings.Contains(err.Error(), "c2VjcmV0") {
		t.Errorf("without an answer: %v", err)
	}
}
