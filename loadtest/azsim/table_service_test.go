package azsim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/queuepump/queuepump/internal/proof"
)

// "A single table partition: up to 2,000 entities per second" (AZURE.md A2):
// a batch counts its entities, other partitions are not concerned, and the
// refusal is a 503 in the table service's form.
func TestThePartitionLimitCountsEntities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Accounts: []Account{{Name: "acct"}}, Limits: PublishedLimits()})
		service, err := aztables.NewServiceClientFromConnectionString(s.ConnectionString("acct"), clientOptions(s))
		must(t, err)
		b := &tableBench{t, s, service}
		c := b.table("tbl")
		batch := func(pk string, from int) error {
			var actions []aztables.TransactionAction
			for i := range 100 {
				row := fmt.Sprintf(`{"PartitionKey":%q,"RowKey":"%d"}`, pk, from+i)
				actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeInsertReplace, Entity: []byte(row)})
			}
			_, err := c.SubmitTransaction(t.Context(), actions, nil)
			return err
		}
		accepted := 0
		start := time.Now()
		for n := 0; time.Since(start) < time.Second; n++ {
			if err := batch("hot", n%50*100); err == nil {
				accepted += 100
			} else {
				wantCode(t, err, 503, "ServerBusy")
				if _, err := c.UpsertEntity(t.Context(), []byte(`{"PartitionKey":"cold","RowKey":"r"}`), nil); err != nil {
					t.Fatalf("another partition: %v", err)
				}
			}
			time.Sleep(25 * time.Millisecond)
		}
		// A burst of a tenth of a second and one debt of a batch come on top.
		if accepted < 2_000 || accepted > 2_300 {
			t.Errorf("%d entities in 1 s, want the published 2,000/s", accepted)
		}
	})
}

// A POST may carry the verb in X-HTTP-Method. A null leaves the property alone.
func TestVerbsThroughATunnel(t *testing.T) {
	b := newTable(t)
	const row = "/tbl(PartitionKey='p',RowKey='r')"
	b.want(b.do("POST", row, `{"A":1}`, "X-HTTP-Method: PUT"), 204, "")
	b.want(b.do("POST", row, `{"A":null,"B":2}`, "X-HTTP-Method: MERGE", "If-Match: *"), 204, "")
	proof.Same(t, b.do("GET", row+"?$select=A,B", "", "Accept: application/json;odata=nometadata").body, `{"A":1,"B":2}`, "row")
	b.want(b.do("POST", row, "", "X-HTTP-Method: DELETE", "If-Match: *"), 204, "")
	b.want(b.do("GET", row, ""), 404, "ResourceNotFound")
}

// Requests are counted under the names of the REST reference.
func TestTableOperationsAreCountedByName(t *testing.T) {
	b := newTable(t)
	const row = "/tbl(PartitionKey='p',RowKey='r')"
	for _, r := range []struct{ method, path, body, header string }{
		{"POST", "/tbl", `{"PartitionKey":"p","RowKey":"r"}`, "A: b"},
		{"GET", row, "", "A: b"},
		{"GET", "/tbl()", "", "A: b"},
		{"PUT", row, "{}", "If-Match: *"},
		{"PATCH", row, "{}", "If-Match: *"},
		{"PUT", row, "{}", "A: b"},
		{"PATCH", row, "{}", "A: b"},
		{"DELETE", row, "", "If-Match: *"},
		{"GET", "/Tables", "", "A: b"},
		{"GET", "/tbl?comp=acl", "", "A: b"},
		{"PUT", "/tbl?comp=acl", "", "A: b"},
		{"POST", "/$batch", changeSet(insertion("p", "1")), batchType},
		{"DELETE", "/Tables('tbl')", "", "A: b"},
	} {
		b.do(r.method, r.path, r.body, r.header)
	}
	got := make(map[string]int)
	for _, c := range b.sim.Stats().Requests {
		if c.Status < 300 {
			got[c.Operation] += int(c.Count)
		}
	}
	for _, name := range []string{
		"InsertEntity", "GetEntity", "QueryEntities", "UpdateEntity", "MergeEntity", "InsertOrReplaceEntity", "InsertOrMergeEntity",
		"DeleteEntity", "QueryTables", "GetTableACL", "SetTableACL", "Batch", "CreateTable", "DeleteTable",
	} {
		proof.Same(t, got[name], 1, name, "counted … times; all", got)
	}
}
