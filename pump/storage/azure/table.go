package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/queuepump/queuepump/pump/storage"
)

// table is a handle on one table.
type table struct {
	account *account
	name    string
	client  *aztables.Client // nil if the name cannot be a table's or tables cannot be reached
}

// validTableName is the service's own rule. ("tables" is reserved; the service says so.)
func validTableName(s string) bool {
	return within(s, 3, 63, func(c byte) bool { return letter(c) || digit(c) }) && letter(s[0])
}

var errTableName = errors.New(
	"the name of a table is a letter and then letters and digits, 3 to 63 in all",
)

// placeholder is the row the SDK is given to make a request from. The carrier
// puts the real row in its place; only the keys in the address are the SDK's.
func placeholder(e storage.Entity) []byte {
	// Both keys have been checked and need no escaping.
	return []byte(`{"PartitionKey":"` + e.Partition + `","RowKey":"` + e.Row + `"}`)
}

const anyVersion = azcore.ETag("*")

func (t *table) Name() string { return t.name }

func (t *table) do(
	ctx context.Context, op, object string, x *exchange, call func(context.Context) error,
) error {
	switch {
	case t.account.noTables != nil:
		return t.account.invalid(storage.Invalid, op, object, t.account.noTables)
	case t.client == nil:
		return t.account.invalid(storage.Invalid, op, object, errTableName)
	}
	return t.account.do(ctx, op, object, x, call)
}

// object names a row in an error.
func (t *table) object(partition, row string) string {
	return fmt.Sprintf("%s(%.64s,%.64s)", t.name, partition, row)
}

func (t *table) Create(ctx context.Context) error {
	x := &exchange{quiet: true, want: http.StatusNoContent, limit: smallAnswer}
	err := t.do(ctx, "create", t.name, x, func(ctx context.Context) error {
		_, err := t.client.CreateTable(ctx, nil)
		return err
	})
	if x.status == http.StatusCreated || serviceCode(err) == "TableAlreadyExists" {
		return nil
	}
	return err
}

func (t *table) Drop(ctx context.Context) error {
	x := &exchange{want: http.StatusNoContent, limit: smallAnswer}
	return t.do(ctx, "drop", t.name, x, func(ctx context.Context) error {
		_, err := t.client.Delete(ctx, nil)
		return err
	})
}

func (t *table) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	object := t.object(partition, row)
	if !validRowKey(partition) || !validRowKey(row) {
		return storage.Entity{}, t.account.invalid(storage.Invalid, "read", object, errRowKey)
	}
	x := &exchange{row: true, want: http.StatusOK, limit: rowAnswer}
	err := t.do(ctx, "read", object, x, func(ctx context.Context) error {
		_, err := t.client.GetEntity(ctx, partition, row, nil)
		return err
	})
	if err != nil {
		return storage.Entity{}, err
	}
	e, err := readEntity(x.answer, x.header.Get("ETag"))
	if err == nil && (e.Partition != partition || e.Row != row) {
		err = errors.New("another row")
	}
	if err != nil {
		return storage.Entity{}, t.account.unreadable("read", object, x, err)
	}
	return e, nil
}

func (t *table) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	object := t.object(w.Entity.Partition, w.Entity.Row)
	body, err := writeBody(w)
	if err != nil {
		return "", t.account.invalid(storage.Invalid, "write", object, err)
	}
	x := &exchange{
		body: body, contentType: "application/json", row: needsRow(w.Mode), want: http.StatusNoContent,
		limit: smallAnswer,
	}
	if w.Mode == storage.Insert {
		x.quiet = true // else the service sends the whole row back
	}
	if w.Mode == storage.Merge {
		x.method = http.MethodPatch
	}
	err = t.do(ctx, "write", object, x, func(ctx context.Context) error { return t.send(ctx, w) })
	if w.Mode == storage.Insert && x.status == http.StatusCreated {
		err = nil // a server need not keep to the preference
	}
	if err != nil {
		return "", err
	}
	if w.Mode == storage.Remove {
		return "", nil
	}
	etag := storage.ETag(x.header.Get("ETag"))
	if etag == "" {
		return "", t.account.unreadable("write", object, x, errors.New("a write without an ETag"))
	}
	return etag, nil
}

// send makes the SDK's request for w. Each request gets new options, because the SDK writes into
// them (azsim/AZURE.md D8), which always say the condition, because otherwise it writes whichever
// version the row has.
func (t *table) send(ctx context.Context, w storage.Write) error {
	var err error
	match := condition(w)
	row := placeholder(w.Entity)
	switch w.Mode {
	case storage.Insert:
		_, err = t.client.AddEntity(ctx, row, nil)
	case storage.Replace:
		_, err = t.client.UpdateEntity(ctx, row, &aztables.UpdateEntityOptions{
			IfMatch: &match, UpdateMode: aztables.UpdateModeReplace,
		})
	case storage.Merge:
		_, err = t.client.UpdateEntity(ctx, row, &aztables.UpdateEntityOptions{
			IfMatch: &match, UpdateMode: aztables.UpdateModeMerge,
		})
	case storage.Upsert:
		_, err = t.client.UpsertEntity(ctx, row,
			&aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace})
	case storage.Remove:
		_, err = t.client.DeleteEntity(ctx, w.Entity.Partition, w.Entity.Row,
			&aztables.DeleteEntityOptions{IfMatch: &match})
	}
	return err
}

func needsRow(m storage.Mode) bool { return m != storage.Insert && m != storage.Upsert }

// condition is the version that w requires.
func condition(w storage.Write) azcore.ETag {
	if w.Entity.ETag == "" {
		return anyVersion
	}
	return azcore.ETag(w.Entity.ETag)
}

// writeBody checks w and gives the bytes of its row, nil for a Remove.
func writeBody(w storage.Write) ([]byte, error) {
	switch {
	case w.Mode > storage.Remove:
		return nil, fmt.Errorf("write mode %d", w.Mode)
	case !validRowKey(w.Entity.Partition) || !validRowKey(w.Entity.Row):
		return nil, errRowKey
	case !within(string(w.Entity.ETag), 0, 1024, func(c byte) bool { return c >= ' ' && c < 0x7f }):
		return nil, errors.New("not an ETag of the service")
	case w.Mode == storage.Remove:
		return nil, nil
	}
	return entityJSON(w.Entity)
}

func (t *table) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		object := t.object(q.Partition, q.From+".."+q.To)
		fail := func(err error) { yield(storage.Entity{}, err) }
		filter, fields, err := queryText(q)
		if err != nil {
			fail(t.account.invalid(storage.Invalid, "query", object, err))
			return
		}
		var nextPartition, nextRow string
		for {
			x := &exchange{want: http.StatusOK, limit: pageAnswer}
			err := t.do(ctx, "query", object, x, func(ctx context.Context) error {
				_, err := t.client.NewListEntitiesPager(&aztables.ListEntitiesOptions{
					Filter: optional(filter), Select: optional(fields),
					NextPartitionKey: optional(nextPartition), NextRowKey: optional(nextRow),
				}).NextPage(ctx)
				return err
			})
			if err != nil {
				fail(err)
				return
			}
			var page struct {
				Value []json.RawMessage `json:"value"`
			}
			if err := json.Unmarshal(x.answer, &page); err != nil || page.Value == nil {
				fail(t.account.unreadable("query", object, x, err))
				return
			}
			for _, doc := range page.Value {
				e, err := readEntity(doc, "")
				if err != nil {
					fail(t.account.unreadable("query", object, x, err))
					return
				}
				if !yield(e, nil) {
					return
				}
			}
			// A page may be empty and not the last (window 28).
			p, r := x.header.Get("x-ms-continuation-NextPartitionKey"),
				x.header.Get("x-ms-continuation-NextRowKey")
			if p == "" && r == "" {
				return
			}
			if p == nextPartition && r == nextRow {
				fail(t.account.unreadable("query", object, x, errors.New("the same page twice")))
				return
			}
			nextPartition, nextRow = p, r
		}
	}
}

// queryText writes q in the service's language. Keys need no quoting once checked.
func queryText(q storage.Query) (filter, fields string, err error) {
	var terms []string
	for _, term := range []struct{ compare, key string }{
		{"PartitionKey eq ", q.Partition}, {"RowKey ge ", q.From}, {"RowKey lt ", q.To},
	} {
		if term.key == "" {
			continue
		}
		if !validRowKey(term.key) {
			return "", "", errRowKey
		}
		terms = append(terms, term.compare+"'"+term.key+"'")
	}
	if len(q.Select) > 0 {
		for _, name := range q.Select {
			if !validProperty(name) {
				return "", "", fmt.Errorf("property %.40q cannot be selected", name)
			}
		}
		fields = "PartitionKey,RowKey,Timestamp," + strings.Join(q.Select, ",")
	}
	return strings.Join(terms, " and "), fields, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
