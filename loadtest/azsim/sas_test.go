package azsim

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/queuepump/queuepump/internal/proof"
)

// Pages cited here: learn.microsoft.com/rest/api/storageservices/create-service-sas,
// .../create-account-sas, .../define-stored-access-policy.

// sasWorld has an account with one queue and signs tokens for it.
type sasWorld struct {
	t     *testing.T
	sim   *Sim
	cred  *azqueue.SharedKeyCredential
	owner *azqueue.QueueClient
}

func newSASWorld(t *testing.T) sasWorld {
	t.Helper()
	s := New(Config{Accounts: []Account{{Name: "acct"}}})
	cred, err := azqueue.NewSharedKeyCredential("acct", s.Key("acct"))
	must(t, err)
	owner, err := azqueue.NewQueueClientWithSharedKeyCredential("https://acct.queue.core.windows.net/queue", cred, &azqueue.ClientOptions{ClientOptions: once(s.Transport())})
	must(t, err)
	must(t, errOf(owner.Create(t.Context(), nil)))
	return sasWorld{t, s, cred, owner}
}

// client uses a queue with nothing but a token.
func (w sasWorld) client(tr *Transport, url string) *azqueue.QueueClient {
	w.t.Helper()
	c, err := azqueue.NewQueueClientWithNoCredential(url, &azqueue.ClientOptions{ClientOptions: once(tr)})
	must(w.t, err)
	return c
}

// sign makes the URL of the queue with a service SAS.
func (w sasWorld) sign(v sas.QueueSignatureValues) string {
	w.t.Helper()
	if v.QueueName == "" {
		v.QueueName = "queue"
	}
	q, err := v.SignWithSharedKey(w.cred)
	must(w.t, err)
	return "https://acct.queue.core.windows.net/queue?" + q.Encode()
}

// operations are what a queue client can do, with the permission of a service
// SAS that allows it.
func operations(t *testing.T, w sasWorld, c *azqueue.QueueClient) map[string]error {
	t.Helper()
	put, err := w.owner.EnqueueMessage(t.Context(), "x", nil)
	must(t, err)
	m := put.Messages[0]
	got := map[string]error{}
	_, got["read"] = c.GetProperties(t.Context(), nil)
	_, got["peek"] = c.PeekMessage(t.Context(), nil)
	_, got["add"] = c.EnqueueMessage(t.Context(), "x", nil)
	_, got["update"] = c.UpdateMessage(t.Context(), *m.MessageID, *m.PopReceipt, "x", nil)
	_, got["process"] = c.DequeueMessage(t.Context(), nil)
	_, got["clear"] = c.ClearMessages(t.Context(), nil)
	_, got["acl"] = c.GetAccessPolicy(t.Context(), nil)
	return got
}

// create-service-sas, permissions for a queue: read, add, update, process (Q80-Q83).
func TestAServiceSASAllowsWhatItsPermissionsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSASWorld(t)
		expiry := time.Now().Add(time.Hour)
		for letters, allowed := range map[string]string{
			"r": "read peek", "a": "add", "u": "update", "p": "process", "raup": "read peek add update process",
		} {
			c := w.client(w.sim.Transport(), w.sign(sas.QueueSignatureValues{Permissions: letters, ExpiryTime: expiry}))
			for name, err := range operations(t, w, c) {
				want := "AuthorizationPermissionMismatch"
				switch {
				case name == "clear" || name == "acl": // which no letter allows
					want = "AuthorizationFailure"
				case strings.Contains(allowed, name):
					want = ""
				}
				proof.Same(t, code(t, err), want, letters, name)
			}
		}
		c := w.client(w.sim.Transport(), w.sign(sas.QueueSignatureValues{QueueName: "other", Permissions: "raup", ExpiryTime: expiry}))
		if _, err := c.GetProperties(t.Context(), nil); code(t, err) != "AuthenticationFailed" {
			t.Errorf("a token for another queue: %v", err)
		}
		tampered := strings.Replace(w.sign(sas.QueueSignatureValues{Permissions: "r", ExpiryTime: expiry}), "sp=r", "sp=raup", 1)
		if _, err := w.client(w.sim.Transport(), tampered).GetProperties(t.Context(), nil); code(t, err) != "AuthenticationFailed" {
			t.Errorf("a token that was changed: %v", err)
		}
	})
}

// create-service-sas: st, se.
func TestASASIsGoodFromItsStartToItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSASWorld(t)
		now := time.Now().UTC()
		c := w.client(w.sim.Transport(), w.sign(sas.QueueSignatureValues{
			Permissions: "r", StartTime: now.Add(time.Minute), ExpiryTime: now.Add(2 * time.Minute),
		}))
		for _, want := range []string{"AuthenticationFailed", "", "AuthenticationFailed"} { // before, within, after
			if _, err := c.GetProperties(t.Context(), nil); code(t, err) != want {
				t.Errorf("at %v: %v, want %q", time.Since(now), err, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// create-service-sas: sip, spr.
func TestASASIsBoundToItsAddressesAndProtocol(t *testing.T) {
	w := newSASWorld(t)
	expiry := time.Now().Add(time.Hour).UTC()
	signed := w.sign(sas.QueueSignatureValues{
		Permissions: "r", ExpiryTime: expiry, Protocol: sas.ProtocolHTTPS,
		IPRange: sas.IPRange{Start: []byte{10, 0, 0, 5}, End: []byte{10, 0, 0, 9}},
	})
	for from, want := range map[string]string{
		"10.0.0.4": "AuthorizationSourceIPMismatch", "10.0.0.5": "", "10.0.0.9": "", "10.0.0.10": "AuthorizationSourceIPMismatch",
		"::1": "AuthorizationSourceIPMismatch",
	} {
		c := w.client(w.sim.Transport().From(netip.MustParseAddr(from)), signed)
		if _, err := c.GetProperties(t.Context(), nil); code(t, err) != want {
			t.Errorf("from %s: %v, want %q", from, err, want)
		}
	}
	plain := w.client(w.sim.Transport().From(netip.MustParseAddr("10.0.0.5")), strings.Replace(signed, "https:", "http:", 1))
	if _, err := plain.GetProperties(t.Context(), nil); code(t, err) != "AuthorizationProtocolMismatch" {
		t.Errorf("by http: %v", err)
	}
}

// define-stored-access-policy: a policy supplies what the token leaves out, and
// changing it revokes the token; a field cannot be specified by both.
func TestAStoredAccessPolicySuppliesWhatTheTokenLeavesOut(t *testing.T) {
	w := newSASWorld(t)
	now := time.Now().UTC()
	set := func(id, permission string) {
		t.Helper()
		expiry := now.Add(time.Hour)
		must(t, errOf(w.owner.SetAccessPolicy(t.Context(), &azqueue.SetAccessPolicyOptions{QueueACL: []*azqueue.SignedIdentifier{{
			ID: &id, AccessPolicy: &azqueue.AccessPolicy{Expiry: &expiry, Permission: &permission},
		}}})))
	}
	set("policy", "ra")
	c := w.client(w.sim.Transport(), w.sign(sas.QueueSignatureValues{Identifier: "policy"}))
	for _, step := range []struct{ id, permission, want string }{
		{"policy", "ra", ""},
		{"policy", "p", "AuthorizationPermissionMismatch"},
		{"policy", "r", ""},
		{"another", "r", "AuthenticationFailed"}, // revoked
	} {
		set(step.id, step.permission)
		if _, err := c.GetProperties(t.Context(), nil); code(t, err) != step.want {
			t.Errorf("policy %s with %s: %v, want %q", step.id, step.permission, err, step.want)
		}
	}
	set("policy", "r")
	both := w.client(w.sim.Transport(), w.sign(sas.QueueSignatureValues{Identifier: "policy", Permissions: "r", ExpiryTime: now.Add(time.Minute)}))
	if _, err := both.GetProperties(t.Context(), nil); code(t, err) != "InvalidQueryParameterValue" {
		t.Errorf("a field in both: %v", err)
	}
}

// create-account-sas: signed services, resource types and permissions.
func TestAnAccountSASCoversServicesResourceTypesAndPermissions(t *testing.T) {
	w := newSASWorld(t)
	sign := func(types, permissions string) string {
		q, err := sas.AccountSignatureValues{
			ResourceTypes: types, Permissions: permissions, ExpiryTime: time.Now().Add(time.Hour).UTC(),
		}.SignWithSharedKey(w.cred)
		must(t, err)
		return q.Encode()
	}
	for _, c := range []struct{ types, permissions, want string }{
		{"o", "a", ""},
		{"o", "rwdlcup", "AuthorizationPermissionMismatch"},
		{"sc", "rwdlacup", "AuthorizationResourceTypeMismatch"},
	} {
		q := w.client(w.sim.Transport(), "https://acct.queue.core.windows.net/queue?"+sign(c.types, c.permissions))
		if _, err := q.EnqueueMessage(t.Context(), "x", nil); code(t, err) != c.want {
			t.Errorf("put with srt=%s sp=%s: %v, want %q", c.types, c.permissions, err, c.want)
		}
	}
	for permissions, want := range map[string]string{"c": "", "w": "", "r": "AuthorizationPermissionMismatch"} { // create or write
		q := w.client(w.sim.Transport(), "https://acct.queue.core.windows.net/new-"+permissions+"?"+sign("c", permissions))
		if _, err := q.Create(t.Context(), nil); code(t, err) != want {
			t.Errorf("create with sp=%s: %v, want %q", permissions, err, want)
		}
	}
	table, err := aztables.NewServiceClientWithNoCredential("https://acct.table.core.windows.net/?"+sign("sco", "rwdlacup"), &aztables.ClientOptions{ClientOptions: once(w.sim.Transport())})
	must(t, err)
	if _, err := table.CreateTable(t.Context(), "table", nil); code(t, err) != "AuthorizationServiceMismatch" {
		t.Errorf("a queue's token at the table service: %v", err)
	}
	service, err := azqueue.NewServiceClientWithSharedKeyCredential("https://acct.queue.core.windows.net", w.cred, nil)
	must(t, err)
	u, err := service.GetSASURL(sas.AccountResourceTypes{Service: true}, sas.AccountPermissions{List: true}, time.Now().Add(time.Hour), nil)
	must(t, err)
	lister, err := azqueue.NewServiceClientWithNoCredential(u, &azqueue.ClientOptions{ClientOptions: once(w.sim.Transport())})
	must(t, err)
	must(t, errOf(lister.NewListQueuesPager(nil).NextPage(t.Context())))
}

// create-service-sas: table SAS with spk, srk, epk, erk; "attempts ... outside
// this range will fail", queries answer what is within.
func TestATableSASSeesOnlyItsKeyRange(t *testing.T) {
	s := New(Config{Accounts: []Account{{Name: "acct"}}})
	cred, err := aztables.NewSharedKeyCredential("acct", s.Key("acct"))
	must(t, err)
	o := &aztables.ClientOptions{ClientOptions: once(s.Transport())}
	owner, err := aztables.NewClientWithSharedKey("https://acct.table.core.windows.net/Table", cred, o)
	must(t, err)
	must(t, errOf(owner.CreateTable(t.Context(), nil)))
	for _, pk := range []string{"a", "b", "c"} {
		must(t, errOf(owner.AddEntity(t.Context(), []byte(`{"PartitionKey":"`+pk+`","RowKey":"1"}`), nil)))
	}
	query, err := aztables.SASSignatureValues{
		TableName: "Table", Permissions: "rau", ExpiryTime: time.Now().Add(time.Hour).UTC(),
		StartPartitionKey: "b", StartRowKey: "1", EndPartitionKey: "b", EndRowKey: "5",
	}.Sign(cred)
	must(t, err)
	// aztables v1.4.1 signs the range but leaves it out of the token.
	rng := url.Values{"spk": {"b"}, "srk": {"1"}, "epk": {"b"}, "erk": {"5"}}.Encode()
	c, err := aztables.NewClientWithNoCredential("https://acct.table.core.windows.net/Table?"+query+"&"+rng, o)
	must(t, err)
	for row, want := range map[[2]string]string{{"b", "1"}: "", {"a", "1"}: "AuthorizationFailure", {"c", "1"}: "AuthorizationFailure", {"b", "6"}: "AuthorizationFailure"} {
		if _, err := c.GetEntity(t.Context(), row[0], row[1], nil); code(t, err) != want {
			t.Errorf("get %v: %v, want %q", row, err, want)
		}
	}
	page, err := c.NewListEntitiesPager(nil).NextPage(t.Context())
	must(t, err)
	proof.Same(t, len(page.Entities), 1, "entities are listed")
}
