package azsim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
)

func ptr[T any](v T) *T { return &v }

func TestClientTables(t *testing.T) {
	b := newTableBench(t, TableOptions{})
	for i := range 25 {
		b.table(fmt.Sprintf("Table%02d", i))
	}
	list := func(o *aztables.ListTablesOptions) (names []string, pages int) {
		for p := b.service.NewListTablesPager(o); p.More(); pages++ {
			resp, err := p.NextPage(b.Context())
			must(t, err)
			for _, tab := range resp.Tables {
				names = append(names, *tab.Name)
			}
		}
		return names, pages
	}
	if names, pages := list(nil); len(names) != 25 || pages != 1 || names[0] != "Table00" || names[24] != "Table24" {
		t.Errorf("%d pages: %v", pages, names)
	}
	if names, pages := list(&aztables.ListTablesOptions{Top: ptr[int32](10)}); len(names) != 25 || pages != 3 {
		t.Errorf("%d pages of 10: %v", pages, names)
	}
	if names, _ := list(&aztables.ListTablesOptions{Filter: ptr("TableName ge 'Table05' and TableName lt 'Table08'"), Top: ptr[int32](2)}); cmp.Diff(names, []string{"Table05", "Table06", "Table07"}) != "" {
		t.Errorf("filtered: %v", names)
	}
}

func TestClientAccessPolicies(t *testing.T) {
	b := newTableBench(t, TableOptions{})
	c, ctx := b.table("tbl"), b.Context()
	if got, err := c.GetAccessPolicy(ctx, nil); err != nil || len(got.SignedIdentifiers) != 0 {
		t.Errorf("a new table's policies: %v %v", got, err)
	}
	start, expiry := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	set := []*aztables.SignedIdentifier{
		{ID: ptr("full"), AccessPolicy: &aztables.AccessPolicy{Start: &start, Expiry: &expiry, Permission: ptr("raud")}},
		{ID: ptr("partial"), AccessPolicy: &aztables.AccessPolicy{Permission: ptr("r")}},
		{ID: ptr("empty")},
	}
	must(t, errOf(c.SetAccessPolicy(ctx, &aztables.SetAccessPolicyOptions{TableACL: set})))
	got, err := c.GetAccessPolicy(ctx, nil)
	must(t, err)
	if len(got.SignedIdentifiers) != 3 || *got.SignedIdentifiers[0].ID != "full" || *got.SignedIdentifiers[0].AccessPolicy.Permission != "raud" || !got.SignedIdentifiers[0].AccessPolicy.Expiry.Equal(expiry) || *got.SignedIdentifiers[1].AccessPolicy.Permission != "r" {
		t.Errorf("policies: %+v", got.SignedIdentifiers)
	}
	var six []*aztables.SignedIdentifier
	for i := range 6 {
		six = append(six, &aztables.SignedIdentifier{ID: ptr(fmt.Sprint(i)), AccessPolicy: &aztables.AccessPolicy{Start: &start, Expiry: &expiry, Permission: ptr("r")}})
	}
	_, err = c.SetAccessPolicy(ctx, &aztables.SetAccessPolicyOptions{TableACL: six})
	if err == nil || !strings.Contains(err.Error(), "too many") && !strings.Contains(err.Error(), "five") {
		t.Errorf("six policies: %v", err)
	}
	proof.Is(t, proof.ErrOf(c.SetAccessPolicy(ctx, nil)), nil, "no policies")
	if got, err := c.GetAccessPolicy(ctx, nil); err != nil || len(got.SignedIdentifiers) != 0 {
		t.Errorf("policies after removal: %v %v", got, err)
	}
	_, err = b.service.NewClient("none").GetAccessPolicy(ctx, nil)
	wantCode(t, err, 404, "TableNotFound")
}

// The recorded form of a refused Set Table ACL: XML of the OData kind, without
// a byte order mark, and with an x-ms-error-code header.
func TestWireFormOfAccessPolicies(t *testing.T) {
	inBubble(t, TableOptions{}, func(b *tableBench) {
		b.table("tbl")
		xml := func(body string) string {
			return `<?xml version="1.0" encoding="utf-8"?>` + body
		}
		bad := `<SignedIdentifiers><SignedIdentifier><AccessPolicy><Expiry>2042-01-01T01:01:01.000000001Z</Expiry></AccessPolicy></SignedIdentifier></SignedIdentifiers>`
		b.wantWire("set a policy without Id", b.do("PUT", "/tbl?comp=acl", bad, "Content-Type: application/xml"), 400,
			map[string]string{"Content-Type": "application/xml", "x-ms-error-code": "InvalidXmlDocument"},
			xml(`<m:error xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><m:code>InvalidXmlDocument</m:code><m:message xml:lang="en-US">XML specified is not syntactically valid.`+"\nRequestId:GUID\nTime:2000-01-01T00:00:00.0000000Z"+`</m:message></m:error>`))
		good := `<SignedIdentifiers><SignedIdentifier><AccessPolicy><Permission>r</Permission><Expiry>2021-06-08T02:10:09Z</Expiry><Start>2021-06-08T02:10:09Z</Start></AccessPolicy><Id>full</Id></SignedIdentifier></SignedIdentifiers>`
		b.wantWire("set", b.do("PUT", "/tbl?comp=acl", good, "Content-Type: application/xml"), 204, map[string]string{}, "")
		b.wantWire("get", b.do("GET", "/tbl?comp=acl", "", "Accept: application/xml"), 200, map[string]string{"Content-Type": "application/xml"},
			"\uFEFF"+xml(`<SignedIdentifiers><SignedIdentifier><Id>full</Id><AccessPolicy><Start>2021-06-08T02:10:09.0000000Z</Start><Expiry>2021-06-08T02:10:09.0000000Z</Expiry><Permission>r</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>`))
	})
}

// sharedOperations are what the holder of a signature may want to do, and the letters that each
// needs.
var sharedOperations = []struct {
	name, needs string
	run         func(ctx context.Context, c *aztables.Client) error
}{
	{"get", "r", func(ctx context.Context, c *aztables.Client) error {
		_, err := c.GetEntity(ctx, "b", "1", nil)
		return err
	}},
	{"query", "r", func(ctx context.Context, c *aztables.Client) error {
		_, err := c.NewListEntitiesPager(nil).NextPage(ctx)
		return err
	}},
	{"update", "u", func(ctx context.Context, c *aztables.Client) error {
		_, err := c.UpdateEntity(ctx, []byte(`{"PartitionKey":"b","RowKey":"1"}`), nil)
		return err
	}},
	{"upsert", "au", func(ctx context.Context, c *aztables.Client) error {
		_, err := c.UpsertEntity(ctx, []byte(`{"PartitionKey":"b","RowKey":"1"}`), nil)
		return err
	}},
	{"delete and insert", "ad", func(ctx context.Context, c *aztables.Client) error {
		if _, err := c.DeleteEntity(ctx, "b", "2", nil); err != nil {
			return err
		}
		_, err := c.AddEntity(ctx, []byte(`{"PartitionKey":"b","RowKey":"2"}`), nil)
		return err
	}},
	{"batch", "au", func(ctx context.Context, c *aztables.Client) error {
		_, err := c.SubmitTransaction(ctx, []aztables.TransactionAction{{
			ActionType: aztables.TransactionTypeUpdateMerge,
			Entity:     []byte(`{"PartitionKey":"b","RowKey":"1"}`), IfMatch: ptr(azcore.ETagAny),
		}, {
			ActionType: aztables.TransactionTypeInsertMerge,
			Entity:     []byte(`{"PartitionKey":"b","RowKey":"2"}`),
		}}, nil)
		return err
	}},
}

// shared is the client of a holder of a signature for table tbl.
func (b *tableBench) shared(v aztables.SASSignatureValues) *aztables.Client {
	b.Helper()
	cred, err := aztables.NewSharedKeyCredential("acct", b.sim.Key("acct"))
	must(b, err)
	v.TableName, v.Protocol = "tbl", aztables.SASProtocolHTTPS
	v.ExpiryTime = time.Now().UTC().Add(time.Hour)
	q, err := v.Sign(cred)
	must(b, err)
	c, err := aztables.NewClientWithNoCredential(benchURL+"/tbl?"+q, clientOptions(b.sim))
	must(b, err)
	return c
}

// Shared access signatures: each operation needs its letter, an upsert two,
// and a range of keys holds for rows addressed and rows queried alike.
func TestSharedAccessToTables(t *testing.T) {
	b := newTableBench(t, TableOptions{})
	owner, ctx := b.table("tbl"), b.Context()
	for _, k := range []string{"a1", "b1", "b2", "c1"} {
		row := fmt.Sprintf(`{"PartitionKey":%q,"RowKey":%q}`, k[:1], k[1:])
		must(t, errOf(owner.AddEntity(ctx, []byte(row), nil)))
	}
	for _, op := range sharedOperations {
		for _, letters := range []string{"r", "a", "u", "d", "au", "ad", "raud"} {
			allowed := true
			for _, l := range op.needs {
				allowed = allowed && strings.ContainsRune(letters, l)
			}
			err := op.run(ctx, b.shared(aztables.SASSignatureValues{Permissions: letters}))
			halfway := op.name == "delete and insert" && letters == "d" // it gets as far as the insertion
			switch {
			case allowed && err != nil:
				t.Errorf("%s with %q: %v", op.name, letters, err)
			case !allowed && err == nil:
				t.Errorf("%s with %q was allowed", op.name, letters)
			case !allowed && !halfway:
				wantCode(t, err, 403, "AuthorizationPermissionMismatch")
			}
			if halfway { // put back what it deleted
				row := []byte(`{"PartitionKey":"b","RowKey":"2"}`)
				must(t, errOf(owner.AddEntity(ctx, row, nil)))
			}
		}
	}
}
