package azure

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestPlainHTTPIsForThisMachineUnlessAllowed(t *testing.T) {
	t.Parallel()
	key := "AccountName=acct;AccountKey=" + testKey
	for name, o := range map[string]Options{
		"a protocol":                   {ConnectionString: "DefaultEndpointsProtocol=http;" + key},
		"a queue endpoint":             {ConnectionString: key + ";QueueEndpoint=http://storage.example;TableEndpoint=https://storage.example"},
		"a table endpoint":             {ConnectionString: key + ";QueueEndpoint=https://storage.example;TableEndpoint=http://storage.example"},
		"an endpoint with a SAS":       {Endpoint: "http://acct.queue.core.windows.net?" + testSAS},
		"a table endpoint with a SAS":  {Endpoint: "https://acct.queue.core.windows.net?" + testSAS, TableEndpoint: "http://acct.table.core.windows.net?" + testSAS},
		"an endpoint for a token":      {Endpoint: "http://acct.queue.core.windows.net", Credential: &issuer{}},
		"a name like loopback's":       {Endpoint: "http://localhost.example?" + testSAS},
		"the address of every machine": {Endpoint: "http://0.0.0.0:10001/acct?" + testSAS, TableEndpoint: "http://0.0.0.0:10002/acct"},
	} {
		proof.Says(t, proof.ErrOf(Open(o)), "plain http", name)
		o.AllowHTTP = true
		proof.Is(t, proof.ErrOf(Open(o)), nil, name, "allowed")
	}
}

func TestWhatIsPlainNeverLeavesThisMachine(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		t.Setenv(name, "http://proxy.example:3128")
	}
	tr := NewTransport(1).Transport.(once).Transport
	for address, proxied := range map[string]bool{
		"http://acct.queue.localhost:10001/": false, "http://127.0.0.1:10001/": false, "http://localhost/": false, "http://[::1]:1/": false,
		"https://acct.queue.core.windows.net/": true, "http://storage.example/": true,
	} {
		u, err := url.Parse(address)
		must(t, err)
		if proxy, err := tr.Proxy(&http.Request{URL: u}); err != nil || (proxy != nil) != proxied {
			t.Errorf("%s goes through %v, %v", address, proxy, err)
		}
	}
	for address, ok := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true, "10.0.0.1:80": false, "0.0.0.0:80": false, "[fe80::1]:80": false, "localhost:80": false} {
		err := onlyLoopback("tcp", address, nil)
		proof.Same(t, err == nil, ok, "a loopback name that resolves to", address, err)
	}
}

// served is a server that counts its requests, and an account that is there.
func served(t *testing.T, secure bool, answer http.HandlerFunc) (storage.Account, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answer(w, r)
	})
	srv := httptest.NewUnstartedServer(counted)
	if secure {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return openAt(t, srv.URL, 1), &asked
}

func TestAServerWithoutAGoodCertificateGetsNoRequest(t *testing.T) {
	t.Parallel()
	a, asked := served(t, true, func(http.ResponseWriter, *http.Request) {})
	for op, call := range requests {
		proof.Says(t, call(t.Context(), a), "certificate", op)
	}
	proof.Same(t, asked.Load(), 0, "requests were made")
}

func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	var led atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		a, _ := served(t, false, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.RequestURI(), status)
		})
		for op, call := range requests {
			if err := call(t.Context(), a); !storage.Is(err, storage.MaybeDone) {
				t.Errorf("%d to %s: %v", status, op, err)
			}
		}
	}
	proof.Same(t, led.Load(), 0, "requests went on to where a redirect led")
}

func TestAListWithoutAnEndIsBounded(t *testing.T) {
	t.Parallel()
	page := 0
	a, asked := served(t, false, func(w http.ResponseWriter, _ *http.Request) {
		page++
		fmt.Fprintf(w, "<EnumerationResults><Queues>%s</Queues><NextMarker>%d</NextMarker></EnumerationResults>", strings.Repeat("<Queue><Name>q</Name></Queue>", 20_000), page)
	})
	if _, err := a.Queues(t.Context(), "q"); !storage.Is(err, storage.MaybeDone) || asked.Load() > 10 {
		t.Errorf("a list without an end, after %d pages: %v", asked.Load(), err)
	}
}
