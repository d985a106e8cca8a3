package realaccounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// cleanTimeout bounds the removing in an account: some 300 requests, eight at a time.
	cleanTimeout = 3 * time.Minute
	removeAtOnce = 8
	// tries is how often a request of the removing is made: it is the last chance.
	tries = 4
)

// madeRow is the row by which a run says that it has made the pump's table.
const madeRow = "made-by-this-run"

// clean removes what this run has made in all accounts, and then looks whether anything is left.
func (r *runner) clean(ctx context.Context) error {
	var failed []error
	mine := func(prefix string, _ time.Time) bool { return prefix == r.prefix }
	for _, t := range r.targets {
		_, err := r.sweep(ctx, t, mine)
		if err == nil {
			err = r.nothingLeft(ctx, t)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("account %s: %w", t.name, err))
		}
	}
	return errors.Join(failed...)
}

// earlier removes what runs that began long ago have left in an account. A younger one may be under
// way elsewhere.
func (r *runner) earlier(ctx context.Context, t *target) (int, error) {
	old := func(prefix string, began time.Time) bool {
		return prefix != r.prefix && r.began.Sub(began) >= r.o.Older
	}
	n, err := r.sweep(ctx, t, old)
	if n > 0 {
		r.o.Log.Info("removed what an earlier run has left", "account", t.name,
			"queues, tables and rows", n)
	}
	return n, err
}

// found is what runs have made in an account.
type found struct {
	queues, tables []string
	rows           []storage.Entity // keys only
}

func (f *found) empty() bool { return len(f.queues)+len(f.tables)+len(f.rows) == 0 }

// sweep removes what the runs that judge names have made, and says how much that was.
func (r *runner) sweep(
	ctx context.Context, t *target, judge func(prefix string, began time.Time) bool,
) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	a, err := r.open(t, partClean, nil)
	if err != nil {
		return 0, err
	}
	f, err := find(ctx, a, judge)
	if err != nil || f.empty() {
		return 0, err
	}
	var made []storage.Entity
	for _, e := range f.rows {
		if e.Row == madeRow {
			made = append(made, e)
		}
	}
	var g errgroup.Group
	g.SetLimit(removeAtOnce)
	for _, name := range f.queues {
		g.Go(func() error { return again(ctx, func() error { return a.Queue(name).Drop(ctx) }) })
	}
	for _, name := range f.tables {
		g.Go(func() error { return again(ctx, func() error { return a.Table(name).Drop(ctx) }) })
	}
	for _, rows := range batches(f.rows) {
		g.Go(func() error { return removeRows(ctx, a.Table(pumpTable), rows) })
	}
	err = g.Wait()
	n := len(f.queues) + len(f.tables) + len(f.rows)
	if err == nil && len(made) > 0 {
		err = dropIfEmpty(ctx, a, made)
	}
	return n, err
}

// again repeats a request that removes something until it is answered. An answer that there is
// nothing is right.
func again(ctx context.Context, request func() error) (err error) {
	for try := range tries {
		err = request()
		if err == nil || storage.Is(err, storage.Missing) || storage.Is(err, storage.Gone) {
			return nil
		}
		if !storage.Ambiguous(err) || wait(ctx, time.Second<<try) != nil {
			return err
		}
	}
	return err
}

// find looks for what the runs that judge names have made.
func find(ctx context.Context, a opened, judge func(string, time.Time) bool) (*found, error) {
	ours := func(name string) bool {
		prefix, began, ok := prefixOf(name)
		return ok && judge(prefix, began)
	}
	f := &found{}
	err := again(ctx, func() error {
		names, err := a.Queues(ctx, mark)
		f.queues = slices.DeleteFunc(names, func(name string) bool { return !ours(name) })
		return err
	})
	if err != nil {
		return nil, err
	}
	names, err := tablesOf(ctx, a)
	if err != nil {
		return nil, err
	}
	f.tables = slices.DeleteFunc(names, func(name string) bool { return !ours(name) })
	rows, err := rowsOf(ctx, a)
	if err != nil {
		return nil, err
	}
	f.rows = slices.DeleteFunc(rows, func(e storage.Entity) bool { return !ours(e.Partition) })
	return f, nil
}

// afterMark is the first text behind all that begin with the mark.
const afterMark = mark + "~"

// tablesOf lists the tables whose names begin with the mark.
func tablesOf(ctx context.Context, a asker) (names []string, err error) {
	query := url.Values{
		"$filter": {fmt.Sprintf("TableName ge '%s' and TableName lt '%s'", mark, afterMark)},
	}
	for {
		re, err := ask(ctx, a, question{table: true, path: "/Tables", query: query})
		if err != nil {
			return nil, err
		}
		if re.status != 200 {
			return nil, fmt.Errorf("the tables cannot be listed: %s", re.answer())
		}
		var page struct{ Value []struct{ TableName string } }
		if err := json.Unmarshal(re.body, &page); err != nil {
			return nil, fmt.Errorf("the list of tables: %w", err)
		}
		for _, t := range page.Value {
			names = append(names, t.TableName)
		}
		next := re.header.Get("x-ms-continuation-NextTableName")
		if next == "" {
			return names, nil
		}
		query.Set("NextTableName", next)
	}
}

// rowsOf lists the keys of the rows of the pump's table whose partitions begin with the mark.
func rowsOf(ctx context.Context, a asker) (rows []storage.Entity, err error) {
	query := url.Values{
		"$filter": {fmt.Sprintf("PartitionKey ge '%s' and PartitionKey lt '%s'", mark, afterMark)},
		"$select": {"PartitionKey,RowKey"},
	}
	for {
		re, err := ask(ctx, a, question{table: true, path: "/" + pumpTable + "()", query: query})
		if err != nil {
			return nil, err
		}
		if re.status == 404 {
			return nil, nil
		}
		if re.status != 200 {
			return nil, fmt.Errorf("the rows of table %s cannot be listed: %s", pumpTable, re.answer())
		}
		var page struct {
			Value []struct{ PartitionKey, RowKey string }
		}
		if err := json.Unmarshal(re.body, &page); err != nil {
			return nil, fmt.Errorf("the rows of table %s: %w", pumpTable, err)
		}
		for _, e := range page.Value {
			rows = append(rows, storage.Entity{Partition: e.PartitionKey, Row: e.RowKey})
		}
		partition := re.header.Get("x-ms-continuation-NextPartitionKey")
		if partition == "" {
			return rows, nil
		}
		query.Set("NextPartitionKey", partition)
		query.Del("NextRowKey")
		if row := re.header.Get("x-ms-continuation-NextRowKey"); row != "" {
			query.Set("NextRowKey", row)
		}
	}
}

// batches divides rows into those of one transaction each. The row that says who made the table
// goes last, or a run that is killed meanwhile would leave a table behind.
func batches(rows []storage.Entity) (list [][]storage.Entity) {
	by := map[string][]storage.Entity{}
	var order []string
	for _, e := range rows {
		if e.Row == madeRow {
			continue
		}
		if by[e.Partition] == nil {
			order = append(order, e.Partition)
		}
		by[e.Partition] = append(by[e.Partition], e)
	}
	for _, partition := range order {
		list = slices.AppendSeq(list, slices.Chunk(by[partition], storage.MaxBatch))
	}
	return list
}

// removeRows removes the rows of one transaction; one by one if another process has removed some.
func removeRows(ctx context.Context, t storage.Table, rows []storage.Entity) error {
	writes := make([]storage.Write, len(rows))
	for i, e := range rows {
		writes[i] = storage.Write{Mode: storage.Remove, Entity: e}
	}
	_, err := t.Transact(ctx, writes)
	if err == nil || storage.Is(err, storage.Missing) {
		return nil
	}
	for _, w := range writes {
		err := again(ctx, func() error { _, err := t.Write(ctx, w); return err })
		if err != nil {
			return err
		}
	}
	return nil
}

// dropIfEmpty drops the pump's table if it holds nothing but rows by which runs say that they made
// it, those of made. If other programs have come to use it, it is theirs, and those rows go.
func dropIfEmpty(ctx context.Context, a opened, made []storage.Entity) error {
	table := a.Table(pumpTable)
	others := false
	for e, err := range table.Query(ctx, storage.Query{}) {
		if err != nil {
			return err
		}
		_, _, ours := prefixOf(e.Partition)
		switch {
		case !ours:
			for _, e := range made {
				if err := removeRows(ctx, table, []storage.Entity{e}); err != nil {
					return err
				}
			}
			return nil
		case !slices.ContainsFunc(made, func(m storage.Entity) bool {
			return m.Partition == e.Partition && m.Row == e.Row
		}):
			others = true // of a run that is under way; a later one drops the table
		}
	}
	if others {
		return nil
	}
	return again(ctx, func() error { return table.Drop(ctx) })
}

// claimTable makes the pump's table if it is not there, and says in it that this run has.
func (r *runner) claimTable(ctx context.Context, t *target) error {
	a, err := r.open(t, partPump, nil)
	if err != nil {
		return err
	}
	re, err := ask(ctx, a, question{
		table: true, path: "/" + pumpTable + "()", query: url.Values{"$top": {"1"}},
	})
	if err != nil || re.status == 200 {
		return err
	}
	for until := time.Now().Add(90 * time.Second); ; {
		err := a.Table(pumpTable).Create(ctx)
		if err == nil {
			break
		}
		// It may have been dropped by the run before this one.
		if !storage.Is(err, storage.Missing) || time.Now().After(until) {
			return err
		}
		if err := wait(ctx, 3*time.Second); err != nil {
			return err
		}
	}
	row := storage.Write{
		Mode: storage.Upsert, Entity: storage.Entity{Partition: r.prefix, Row: madeRow},
	}
	_, err = a.Table(pumpTable).Write(ctx, row)
	return err
}

// nothingLeft looks once more.
func (r *runner) nothingLeft(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	a, err := r.open(t, partClean, nil)
	if err != nil {
		return err
	}
	f, err := find(ctx, a, func(prefix string, _ time.Time) bool { return prefix == r.prefix })
	if err != nil {
		return err
	}
	f.rows = slices.DeleteFunc(f.rows, func(e storage.Entity) bool { return e.Row == madeRow })
	if !f.empty() {
		return fmt.Errorf("left over: queues %s, tables %s, %d rows of table %s",
			strings.Join(f.queues, " "), strings.Join(f.tables, " "), len(f.rows), pumpTable)
	}
	return nil
}
