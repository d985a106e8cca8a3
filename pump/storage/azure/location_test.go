package azure

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

const testSAS = "sv=2022-11-02&ss=qt&srt=sco&sp=rwdlacup&se=2030-01-01T00%3A00%3A00Z&sig=c2VjcmV0%2Bc2lnbmF0dXJl%2FPQ%3D%3D"

// reached opens o and says which addresses a queue and a table request go to,
// with the query of the first, and how they are authorised.
type reached struct{ Name, Queue, Table, Auth string }

func reach(t *testing.T, o Options) reached {
	t.Helper()
	var r reached
	var last *http.Request
	o.Transport = transportFunc(func(req *http.Request) (*http.Response, error) {
		last = req
		return nil, io.EOF
	})
	a, err := Open(o)
	must(t, err)
	r.Name = a.Name()
	_ = a.Queue("queue").Drop(t.Context())
	u := *last.URL
	u.RawQuery = ""
	r.Queue = u.String()
	r.Auth, _, _ = strings.Cut(last.Header.Get("Authorization"), ":")
	if sig := last.URL.Query().Get("sig"); sig != "" {
		r.Auth += "SAS " + sig
	}
	last = nil
	err = a.Table("table1").Drop(t.Context())
	if last == nil {
		if !storage.Is(err, storage.Invalid) || !strings.Contains(err.Error(), "tableEndpoint") {
			t.Errorf("tables cannot be reached, and the error does not say what to do: %v", err)
		}
		return r
	}
	u = *last.URL
	u.RawQuery = ""
	r.Table = u.String()
	return r
}

func TestEveryWayToNameAnAccount(t *testing.T) {
	t.Parallel()
	const q, tb = "https://acct.queue.core.windows.net/queue", "https://acct.table.core.windows.net/Tables%28%27table1%27%29"
	shared := "SharedKey acct"
	sas := "SAS c2VjcmV0+c2lnbmF0dXJl/PQ=="
	for name, c := range map[string]struct {
		o    Options
		want reached
	}{
		"as the portal gives it":      {Options{ConnectionString: testConnection}, reached{"acct", q, tb, shared}},
		"semicolons and spaces":       {Options{ConnectionString: " ;; " + strings.ReplaceAll(testConnection, ";", " ;\n ") + ";;; "}, reached{"acct", q, tb, shared}},
		"names in any case":           {Options{ConnectionString: "accountname=acct;ACCOUNTKEY=" + testKey}, reached{"acct", q, tb, shared}},
		"another cloud":               {Options{ConnectionString: "AccountName=acct;AccountKey=" + testKey + ";EndpointSuffix=core.chinacloudapi.cn"}, reached{"acct", "https://acct.queue.core.chinacloudapi.cn/queue", "https://acct.table.core.chinacloudapi.cn/Tables%28%27table1%27%29", shared}},
		"endpoints of an emulator":    {Options{ConnectionString: "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=http://127.0.0.1:10001/acct;TableEndpoint=http://127.0.0.1:10002/acct/;"}, reached{"acct", "http://127.0.0.1:10001/acct/queue", "http://127.0.0.1:10002/acct/Tables%28%27table1%27%29", shared}},
		"a queue endpoint only":       {Options{ConnectionString: "AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=http://127.0.0.1:10001/acct"}, reached{"acct", "http://127.0.0.1:10001/acct/queue", "", shared}},
		"a queue endpoint of Azure":   {Options{ConnectionString: "AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=https://acct.queue.core.windows.net/"}, reached{"acct", q, tb, shared}},
		"development storage":         {Options{ConnectionString: "UseDevelopmentStorage=true"}, reached{"devstoreaccount1", "http://127.0.0.1:10001/devstoreaccount1/queue", "http://127.0.0.1:10002/devstoreaccount1/Tables%28%27table1%27%29", "SharedKey devstoreaccount1"}},
		"SAS, as the portal gives it": {Options{ConnectionString: "BlobEndpoint=https://acct.blob.core.windows.net/;QueueEndpoint=https://acct.queue.core.windows.net/;FileEndpoint=https://acct.file.core.windows.net/;TableEndpoint=https://acct.table.core.windows.net/;SharedAccessSignature=" + testSAS}, reached{"acct", q, tb, sas}},
		"SAS with endpoints":          {Options{ConnectionString: "AccountName=acct;QueueEndpoint=http://127.0.0.1:1/acct;TableEndpoint=http://127.0.0.1:2/acct;SharedAccessSignature=?" + testSAS}, reached{"acct", "http://127.0.0.1:1/acct/queue", "http://127.0.0.1:2/acct/Tables%28%27table1%27%29", sas}},
		"SAS and account name":        {Options{ConnectionString: "AccountName=acct;SharedAccessSignature=" + testSAS + ";EndpointSuffix=core.windows.net"}, reached{"acct", q, tb, sas}},
		"endpoint with SAS":           {Options{Endpoint: "https://acct.queue.core.windows.net/?" + testSAS}, reached{"acct", q, tb, sas}},
		"endpoints with a SAS":        {Options{Endpoint: "http://localhost:1/acct?" + testSAS, TableEndpoint: "http://localhost:2/acct"}, reached{"acct", "http://localhost:1/acct/queue", "http://localhost:2/acct/Tables%28%27table1%27%29", sas}},
		"a name of one's own":         {Options{ConnectionString: testConnection, Name: "east"}, reached{"east", q, tb, shared}},
		"path style of an address":    {Options{Endpoint: "http://127.0.0.1:1?" + testSAS}, reached{"127.0.0.1:1", "http://127.0.0.1:1/queue", "", sas}},
		"plain http on purpose":       {Options{Endpoint: "http://acct.queue.corp.example?" + testSAS, AllowHTTP: true}, reached{"acct", "http://acct.queue.corp.example/queue", "http://acct.table.corp.example/Tables%28%27table1%27%29", sas}},
		"both: the key wins":          {Options{ConnectionString: testConnection + ";SharedAccessSignature=" + testSAS}, reached{"acct", q, tb, shared}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := reach(t, c.o)
			got.Table = strings.NewReplacer("(", "%28", ")", "%29", "'", "%27").Replace(got.Table)
			proof.Same(t, cmp.Diff(c.want, got), "")
		})
	}
}

func TestTheBlobServiceIsFoundBesideTheQueues(t *testing.T) {
	t.Parallel()
	for at, o := range map[string]Options{
		"https://acct.blob.core.windows.net/box/x":       {ConnectionString: testConnection},
		"https://acct.blob.core.chinacloudapi.cn/box/x":  {ConnectionString: "AccountName=acct;AccountKey=" + testKey + ";EndpointSuffix=core.chinacloudapi.cn"},
		"https://blobs.corp.example/box/x":               {ConnectionString: testConnection + ";BlobEndpoint=https://blobs.corp.example/"},
		"http://127.0.0.1:10000/devstoreaccount1/box/x":  {ConnectionString: "UseDevelopmentStorage=true"},
		"https://acct.blob.core.windows.net/box/x?sas":   {Endpoint: "https://acct.queue.core.windows.net/?" + testSAS},
		"http://localhost:3/acct/box/x?sas":              {Endpoint: "http://localhost:1/acct?" + testSAS, TableEndpoint: "http://localhost:2/acct", BlobEndpoint: "http://localhost:3/acct"},
		"blobEndpoint (BlobEndpoint in a connection str": {ConnectionString: "AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=http://127.0.0.1:10001/acct"},
	} {
		f := &fake{status: 202}
		o.Transport = f
		a, err := Open(o)
		must(t, err)
		err = a.Container("box").Delete(t.Context(), "x")
		if f.last == nil {
			if !storage.Is(err, storage.Invalid) || !strings.Contains(err.Error(), at) {
				t.Errorf("%v, want %s", err, at)
			}
			continue
		}
		must(t, err)
		got := *f.last.URL
		if got.RawQuery != "" {
			got.RawQuery = "sas"
		}
		proof.Same(t, got.String(), at)
		if a, ok := a.(*account); ok {
			if host, err := a.BlobHost(); err != nil || host != got.Hostname() {
				t.Errorf("%q, %v", host, err)
			}
		}
	}
}

func TestWhatIsWrongIsNamedWithoutTheSecret(t *testing.T) {
	t.Parallel()
	sig, err := url.QueryUnescape("c2VjcmV0%2Bc2lnbmF0dXJl%2FPQ%3D%3D")
	must(t, err)
	for says, o := range map[string]Options{
		"connectionString: is not given, nor is endpoint":                             {},
		"endpoint: stands beside connectionString":                                    {ConnectionString: testConnection, Endpoint: "https://acct.queue.core.windows.net"},
		"neither AccountKey= nor SharedAccessSignature=":                              {ConnectionString: "AccountName=acct"},
		"neither AccountName= nor QueueEndpoint=":                                     {ConnectionString: "AccountKey=" + testKey},
		"part 2 is not NAME=VALUE":                                                    {ConnectionString: "AccountName=acct;" + strings.TrimRight(testKey, "=")},
		"AccountKey is not base64":                                                    {ConnectionString: "AccountName=acct;AccountKey=" + testKey[:len(testKey)-3]},
		"AccountName must be":                                                         {ConnectionString: "AccountName=a/b.c?" + ";AccountKey=" + testKey},
		"SharedAccessSignature: ":                                                     {ConnectionString: "AccountName=acct;SharedAccessSignature=sv=1&se=2"},
		"no sig= part":                                                                {Endpoint: "https://acct.queue.core.windows.net/?sv=2022"},
		"signature is damaged":                                                        {Endpoint: "https://acct.queue.core.windows.net/?sv=2022&sig=" + sig + "%zz"},
		"must begin with https://":                                                    {Endpoint: "acct.queue.core.windows.net/?" + testSAS},
		"connectionString: has a quote in it; take the ":                              {ConnectionString: `"` + testConnection + `"`},
		"has a quote in it; take the quotes away":                                     {ConnectionString: testConnection + `;QueueEndpoint=https://acct.queue.core.windows.net/";`},
		"endpoint: has a quote in it":                                                 {Endpoint: `'https://acct.queue.core.windows.net/?` + testSAS + `'`},
		"EndpointSuffix begins with a dot; take it away":                              {ConnectionString: strings.Replace(testConnection, "core.", ".core.", 1)},
		"of one queue, not of an account; end it behind ":                             {ConnectionString: "QueueEndpoint=https://acct.queue.core.windows.net/orders;SharedAccessSignature=" + testSAS},
		"SharedAccessSignature: the shared access signature is of one queue or table": {ConnectionString: "AccountName=acct;SharedAccessSignature=sv=2021-01-01&sp=raup&sig=AAAA"},
		"signature is of one queue or table, not":                                     {Endpoint: "https://acct.queue.core.windows.net/?sv=2021-01-01&si=policy&sig=AAAA"},
		"is not for queues (ss=q); make one":                                          {Endpoint: "https://acct.queue.core.windows.net/?" + strings.Replace(testSAS, "ss=qt", "ss=t", 1)},
		"is not for queues and messages (srt=co); make":                               {Endpoint: "https://acct.queue.core.windows.net/?" + strings.Replace(testSAS, "srt=sco", "srt=s", 1)},
		"lacks rights (at the least sp=ra); make one":                                 {Endpoint: "https://acct.queue.core.windows.net/?" + strings.Replace(testSAS, "sp=rwdlacup", "sp=p", 1)},
		"begins only at 2999-01-01T00:00:00Z; make one":                               {Endpoint: "https://acct.queue.core.windows.net/?st=2999-01-01&" + testSAS},
		"is a ? missing before the shared access":                                     {Endpoint: "https://acct.queue.core.windows.net/" + testSAS},
		"not an address":                                                              {Endpoint: "https://acct .queue/?" + testSAS},
		"has no host":                                                                 {Endpoint: "https:///?" + testSAS},
		"user or password":                                                            {Endpoint: "https://" + sig[:8] + "@acct.queue.core.windows.net"},
		"a # in it":                                                                   {Endpoint: "https://acct.queue.core.windows.net/#" + testSAS},
		"blobEndpoint: is the address of one":                                         {Endpoint: "https://acct.queue.core.windows.net?" + testSAS, BlobEndpoint: "https://acct.queue.core.windows.net/queue"},
		"tableEndpoint: ":                                                             {Endpoint: "https://acct.queue.core.windows.net/?" + testSAS, TableEndpoint: "ftp://x"},
		"plain http to acct.queue.corp.example":                                       {Endpoint: "http://acct.queue.corp.example?" + testSAS},
		"plain http to acct.queue.core.windows.net would":                             {ConnectionString: strings.Replace(testConnection, "https", "http", 1)},
		"plain http to 10.0.0.1:2":                                                    {Endpoint: "http://127.0.0.1:1/acct?" + testSAS, TableEndpoint: "http://10.0.0.1:2/acct"},
	} {
		_, err := Open(o)
		if err == nil {
			t.Errorf("%q: opened", says)
			continue
		}
		proof.Says(t, err, says)
		if w, ok := errors.AsType[*OptionError](err); !ok || w.Problem == "" || w.Fix == "" {
			t.Errorf("%q does not say which option is wrong, and what mends it", err)
		}
		for _, secret := range []string{testKey[:20], sig, "c2VjcmV0"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q shows a secret", err)
			}
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST.": true, "acct.queue.localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true,
		"": false, "localhost.example": false, "notlocalhost": false, "10.0.0.1": false, "0.0.0.0": false, "127.0.0.1.example": false,
	} {
		proof.Same(t, loopback(host), want, "loopback", host)
	}
}

// No text, however wrong, may panic or be accepted without a host.
func FuzzOpen(f *testing.F) {
	f.Add(testConnection, "", "")
	f.Add("", "https://acct.queue.core.windows.net/?"+testSAS, "")
	f.Add("UseDevelopmentStorage=true", "", "https://x")
	f.Fuzz(func(t *testing.T, connection, endpoint, table string) {
		l, err := locate(Options{ConnectionString: connection, Endpoint: endpoint, TableEndpoint: table})
		if err != nil {
			return
		}
		u, err := url.Parse(l.queue)
		if err != nil || u.Host == "" || u.RawQuery != "" || u.User != nil {
			t.Errorf("%q became %q", connection+endpoint, l.queue)
		}
		if u.Scheme == "http" && !loopback(u.Hostname()) {
			t.Errorf("plain http to %q", u.Host)
		}
		if l.key == "" && l.sas == "" && connection != "" {
			t.Error("a connection string without a secret")
		}
	})
}
