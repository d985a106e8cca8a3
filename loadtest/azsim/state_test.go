package azsim

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/internal/proof"
)

// An account that is disabled refuses whatever it is asked, at both services, and keeps what it
// holds.
func TestADisabledAccountRefusesEveryRequestOfBothServices(t *testing.T) {
	w, s := newRaw(t, Config{Accounts: []Account{{Name: "acct"}, {Name: "other"}}})
	w.create("queue")
	w.put("queue", "x", "")
	table := w
	table.at = benchURL
	other := w
	other.at = "https://other.queue.core.windows.net"
	spared := w
	spared.tr = s.Transport().Spared()
	s.SetState("acct", Disabled)
	for _, r := range []struct {
		w              raw
		method, target string
	}{
		{w, "POST", "/queue/messages"},
		{w, "GET", "/queue/messages"},
		{w, "GET", "/nosuch?comp=metadata"},
		{w, "GET", "/?comp=list"},
		{w, "GET", "/Bad_Name/messages"}, // whatever it is: nobody reads it
		{w, "GET", "/?restype=service&comp=properties"},
		{table, "GET", "/Tables"},
		{table, "GET", "/rows(PartitionKey='p',RowKey='r')"},
		{table, "GET", "/rows()"},
	} {
		a := r.w.do(r.method, r.target, "")
		proof.Same(t, a.status, 403, r.method, r.target, a.body)
		proof.Has(t, a.body, "AccountIsDisabled", r.method, r.target)
	}
	proof.Same(t, len(spared.peek("queue")), 1, "who is spared sees … messages, want 1")
	other.create("queue") // is well
	s.SetState("acct", Well)
	proof.Same(t, texts(w.peek("queue")), "x", "it comes back with")
	s.SetState("nosuch", Gone)
}

// The name of an account that was deleted leads to no host. It comes back with what it held, or as
// another account of its name.
func TestAnAccountThatIsGoneIsNoHostAndMayComeBack(t *testing.T) {
	w, s := newQueue(t)
	w.put("queue", "x", "")
	for _, empty := range []bool{false, true} {
		s.SetState("acct", Gone)
		if empty {
			s.Reset("acct")
		}
		_, err := w.try("POST", "/queue/messages", text("y"))
		var dns *net.DNSError
		if !errors.As(err, &dns) || !dns.IsNotFound || dns.Name != "acct.queue.core.windows.net" {
			t.Fatalf("gone: %v", err)
		}
		s.SetState("acct", Well)
		if empty {
			w.want(404, "QueueNotFound", "GET", "/queue/messages", "")
		} else if got := texts(w.peek("queue")); got != "x" {
			t.Errorf("it comes back with %q", got)
		}
	}
	proof.Same(t, s.Stats().Blackouts["acct"], 2, "requests were counted that met no host")
}

// By TCP the host is always there, so the connection is closed.
func TestAnAccountThatIsGoneClosesTheConnectionByTCP(t *testing.T) {
	s := New(Config{Accounts: []Account{{Name: "acct"}}})
	srv, err := s.Listen("", "")
	must(t, err)
	defer srv.Close()
	ask := func() (*http.Response, error) { return http.Get(srv.QueueEndpoint("acct") + "/queue/messages") }
	s.SetState("acct", Gone)
	if resp, err := ask(); err == nil {
		resp.Body.Close()
		t.Errorf("gone: %s", resp.Status)
	}
	s.SetState("acct", Disabled)
	resp, err := ask()
	must(t, err)
	resp.Body.Close()
	if code := resp.Header.Get("X-Ms-Error-Code"); resp.StatusCode != 403 || code != "AccountIsDisabled" {
		t.Errorf("disabled: %s %s", resp.Status, code)
	}
}

// A credential that has run out is one client's matter, told by its name in the process or by what
// its User-Agent says.
func TestARuleRefusesOneClientOnly(t *testing.T) {
	s := New(Config{Accounts: []Account{{Name: "acct"}}, Limits: NoLimits()})
	client := func(name, agent string) *azqueue.QueueClient {
		o := &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: s.Transport().As(name)}}
		o.Telemetry.ApplicationID = agent
		c, err := azqueue.NewServiceClientFromConnectionString(s.ConnectionString("acct"), o)
		must(t, err)
		return c.NewQueueClient("queue")
	}
	clients := map[string]*azqueue.QueueClient{"p1": client("p1", "one"), "p10": client("p10", "two")}
	must(t, errOf(clients["p1"].Create(t.Context(), nil)))
	for _, r := range []Rule{{Instance: "p1"}, {UserAgent: "one"}} {
		r.Fault, r.Status, r.Code = Answer, http.StatusForbidden, "AuthenticationFailed"
		i := s.Inject(r)
		for name, c := range clients {
			_, err := c.GetProperties(t.Context(), nil)
			var refused *azcore.ResponseError
			proof.Same(t, errors.As(err, &refused) && refused.ErrorCode == r.Code, (name == "p1"),
				r, name, "answered", err)
		}
		proof.Same(t, i.Hits(), 1, i)
		i.Remove()
	}
}

// A partition of a table is slow, silent, too busy or damaged, and its neighbours are well.
func TestARuleHitsOnePartitionOfATable(t *testing.T) {
	b := newTableBench(t, TableOptions{})
	must(t, errOf(b.service.CreateTable(t.Context(), "rows", nil)))
	c := b.service.NewClient("rows")
	entity := func(pk string) []byte {
		return []byte(`{"PartitionKey":"` + pk + `","RowKey":"r","B":"AQIDBA==","B@odata.type":"Edm.Binary","S":"text"}`)
	}
	for _, pk := range []string{"p.0", "p.01"} {
		must(t, errOf(c.AddEntity(t.Context(), entity(pk), nil)))
	}
	ways := map[string]func(ctx context.Context, pk string) ([]byte, error){
		"get": func(ctx context.Context, pk string) ([]byte, error) {
			r, err := c.GetEntity(ctx, pk, "r", nil)
			return r.Value, err
		},
		"query": func(ctx context.Context, pk string) ([]byte, error) {
			filter := "PartitionKey eq '" + pk + "' and RowKey ge 'a'"
			r, err := c.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter}).NextPage(ctx)
			return bytes.Join(r.Entities, nil), err
		},
		"write": func(ctx context.Context, pk string) ([]byte, error) {
			_, err := c.UpdateEntity(ctx, entity(pk), nil)
			return nil, err
		},
		"batch": func(ctx context.Context, pk string) ([]byte, error) {
			_, err := c.SubmitTransaction(ctx, []aztables.TransactionAction{
				{ActionType: aztables.TransactionTypeUpdateMerge, Entity: entity(pk)},
			}, nil)
			return nil, err
		},
	}
	for what, ask := range ways {
		i := b.sim.Inject(Rule{Fault: FailBefore, Partition: "p.0"})
		proof.Is(t, proof.ErrOf(ask(t.Context(), "p.0")), syscall.ECONNRESET, what)
		proof.Is(t, proof.ErrOf(ask(t.Context(), "p.01")), nil, what, "of another partition")
		i.Remove()
		i = b.sim.Inject(Rule{Fault: Damage, Partition: "p.0", Operations: []string{"GetEntity", "QueryEntities"}})
		for pk, whole := range map[string]bool{"p.0": false, "p.01": true} {
			body, err := ask(t.Context(), pk)
			if err != nil || body != nil && bytes.Contains(body, []byte(`"AQIDBA=="`)) != whole {
				t.Errorf("%s of %s: %s, %v", what, pk, body, err)
			}
			if body != nil && !whole && !bytes.Contains(body, []byte(`"B":"AQID"`)) {
				t.Errorf("%s of %s: %s", what, pk, body)
			}
		}
		i.Remove()
	}
	body, err := ways["get"](t.Context(), "p.0")
	if err != nil || !bytes.Contains(body, []byte(`"AQIDBA=="`)) {
		t.Errorf("after all: %s, %v", body, err)
	}
}

func TestDeletedQueuesAreGoneWithWhatIsInThem(t *testing.T) {
	w, s := newRaw(t, Config{})
	for _, name := range []string{"one", "two", "three"} {
		w.create(name)
		w.put(name, "x", "")
	}
	w.put("one", "y", "?visibilitytimeout=60")
	if got := s.Texts("acct", "one"); len(got) != 2 || string(got[0])+string(got[1]) != "xy" {
		t.Errorf("it holds %q", got)
	}
	if s.Texts("acct", "nosuch") != nil || s.Texts("nosuch", "one") != nil {
		t.Error("there are texts where no queue is")
	}
	proof.Same(t, s.DeleteQueues("acct", "two", "nosuch"), 1, "of the named were deleted, want 1")
	w.want(404, "QueueNotFound", "GET", "/two/messages", "")
	w.want(409, "QueueBeingDeleted", "PUT", "/two", "")
	proof.Same(t, texts(w.peek("one")), "x", "another has")
	proof.Same(t, s.DeleteQueues("acct"), 2, "left to delete, want 2")
	w.want(404, "QueueNotFound", "POST", "/one/messages", text("y"))
	proof.Same(t, s.DeleteQueues("nosuch"), 0, "of an account that does not exist")
}
