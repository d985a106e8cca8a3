package realaccounts

import (
	"context"
	"encoding/json"
	"encoding/xml"
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
	// madeRow is the row of a run that has made the pump's table. The run writes it.
	madeRow = "made-by-this-run"
	// afterMark is the first text behind all that begin with the mark.
	afterMark = mark + "~"
)

// clean removes what this run has made in all accounts, and then looks whether anything is left.
func (tr *trial) clean(ctx context.Context) (failed error) {
	mine := func(prefix string, _ time.Time) bool { return prefix == tr.prefix }
	for _, t := range tr.targets {
		_, err := tr.sweep(ctx, t, mine)
		left := &found{}
		if err == nil {
			left, err = tr.find(ctx, t, mine)
		}
		if err == nil && len(left.queues)+len(left.tables)+len(left.containers)+len(left.rows) > 0 {
			err = fmt.Errorf("left over: queues %s, tables %s, containers %s, %d rows of table %s", strings.Join(left.queues, " "),
				strings.Join(left.tables, " "), strings.Join(left.containers, " "), len(left.rows), pumpTable)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("account %s: %w", t.name, err))
		}
	}
	return failed
}

// earlier removes what runs that began long ago have left. A younger one may be under way elsewhere.
func (tr *trial) earlier(ctx context.Context) (removed int, err error) {
	old := func(prefix string, began time.Time) bool {
		return prefix != tr.prefix && tr.began.Sub(began) >= tr.older
	}
	for _, t := range tr.targets {
		n, err := tr.sweep(ctx, t, old)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("account %s: %w", t.name, err)
		}
	}
	return removed, nil
}

// found is what runs have made in an account.
type found struct {
	queues, tables, containers []string

	rows, made []storage.Entity // keys only; made: those that say who made the pump's table
}

// sweep removes what the runs that judge names have made, and says how much that was.
func (tr *trial) sweep(ctx context.Context, t *target, judge func(prefix string, began time.Time) bool) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	f, err := tr.find(ctx, t, judge)
	if err != nil {
		return 0, err
	}
	a, err := tr.open(t, partClean)
	if err != nil {
		return 0, err
	}
	var g errgroup.Group
	g.SetLimit(removeAtOnce)
	for _, name := range f.queues {
		g.Go(func() error { return again(ctx, func() error { return a.Queue(name).Drop(ctx) }) })
	}
	for _, name := range f.tables {
		g.Go(func() error { return again(ctx, func() error { return a.Table(name).Drop(ctx) }) })
	}
	for _, name := range f.containers {
		g.Go(func() error { return again(ctx, func() error { return dropContainer(ctx, a, name) }) })
	}
	for rest := f.rows; len(rest) > 0; { // those of a partition stand together
		n := 1
		for n < min(len(rest), storage.MaxBatch) && rest[n].Partition == rest[0].Partition {
			n++
		}
		rows := rest[:n]
		rest = rest[n:]
		g.Go(func() error { return removeRows(ctx, a.Table(pumpTable), rows) })
	}
	err = g.Wait()
	// The row that says who made the table goes last, or a run that is killed meanwhile would leave
	// the table behind.
	if err == nil && len(f.made) > 0 {
		err = dropIfEmpty(ctx, a.Table(pumpTable), f.made)
	}
	return len(f.queues) + len(f.tables) + len(f.containers) + len(f.rows) + len(f.made), err
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
func (tr *trial) find(ctx context.Context, t *target, judge func(string, time.Time) bool) (*found, error) {
	a, err := tr.open(t, partClean)
	if err != nil {
		return nil, err
	}
	ours := func(name string) bool {
		prefix, began, ok := prefixOf(name)
		return ok && judge(prefix, began)
	}
	f := &found{}
	err = again(ctx, func() error {
		names, err := a.Queues(ctx, mark)
		f.queues = slices.DeleteFunc(names, func(name string) bool { return !ours(name) })
		return err
	})
	if err != nil {
		return nil, err
	}
	tables, err := listed(ctx, a, "/Tables", "TableName")
	if err != nil {
		return nil, err
	}
	for _, l := range tables {
		if ours(l.TableName) {
			f.tables = append(f.tables, l.TableName)
		}
	}
	if f.containers, err = containers(ctx, a, t); err != nil {
		return nil, err
	}
	f.containers = slices.DeleteFunc(f.containers, func(name string) bool { return !ours(name) })
	rows, err := listed(ctx, a, "/"+pumpTable+"()", "PartitionKey")
	if err != nil {
		return nil, err
	}
	for _, l := range rows {
		e := storage.Entity{Partition: l.PartitionKey, Row: l.RowKey}
		switch {
		case ours(e.Partition) && e.Row == madeRow:
			f.made = append(f.made, e)
		case ours(e.Partition):
			f.rows = append(f.rows, e)
		}
	}
	return f, nil
}

// containers lists those that runs have made. A credential without a right to blobs has made none.
func containers(ctx context.Context, a opened, t *target) ([]string, error) {
	if t.blobs == "" {
		return nil, nil
	}
	re, err := ask(ctx, a, question{service: "blob", path: "/", query: url.Values{"comp": {"list"}, "prefix": {mark}}})
	if err != nil || re.status == 401 || re.status == 403 {
		return nil, err
	}
	var page struct {
		Names []string `xml:"Containers>Container>Name"`
	}
	if err := xml.Unmarshal(trimMark(re.body), &page); re.status != 200 || err != nil {
		return nil, fmt.Errorf("containers cannot be listed: %s, %v", re.answer(), err)
	}
	return page.Names, nil
}

func dropContainer(ctx context.Context, a asker, name string) error {
	re, err := ask(ctx, a, question{service: "blob", method: "DELETE", path: "/" + name, query: url.Values{"restype": {"container"}}})
	if err == nil && re.status != 202 && re.status != 404 && re.status != 409 { // 409: it is being deleted
		err = fmt.Errorf("container %s: %s", name, re.answer())
	}
	return err
}

// line is a table, or a row of the pump's table.
type line struct{ TableName, PartitionKey, RowKey string }

// listed lists what is there with a field that begins with the mark.
func listed(ctx context.Context, a asker, path, field string) (all []line, err error) {
	query := url.Values{"$filter": {fmt.Sprintf("%s ge '%s' and %s lt '%s'", field, mark, field, afterMark)}}
	if field == "PartitionKey" {
		query.Set("$select", "PartitionKey,RowKey")
	}
	for {
		re, err := ask(ctx, a, question{service: "table", path: path, query: query})
		if err != nil {
			return nil, err
		}
		if re.status == 404 {
			return nil, nil
		}
		var page struct{ Value []line }
		if err := json.Unmarshal(re.body, &page); re.status != 200 || err != nil {
			return nil, fmt.Errorf("%s cannot be listed: %s, %v", path, re.answer(), err)
		}
		all = append(all, page.Value...)
		more := false
		for _, at := range []string{"NextTableName", "NextPartitionKey", "NextRowKey"} {
			query.Del(at)
			if next := re.header.Get("x-ms-continuation-" + at); next != "" {
				query.Set(at, next)
				more = true
			}
		}
		if !more {
			return all, nil
		}
	}
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

// dropIfEmpty drops the pump's table if it holds nothing but rows of runs that say that they made
// it, those of made. If other programs have come to use it, it is theirs, and those rows go.
func dropIfEmpty(ctx context.Context, table storage.Table, made []storage.Entity) error {
	others := false
	for e, err := range table.Query(ctx, storage.Query{}) {
		if err != nil {
			return err
		}
		if _, _, ours := prefixOf(e.Partition); !ours {
			for _, e := range made {
				err = errors.Join(err, removeRows(ctx, table, []storage.Entity{e}))
			}
			return err
		}
		others = others || !slices.ContainsFunc(made, func(m storage.Entity) bool {
			return m.Partition == e.Partition && m.Row == e.Row
		})
	}
	if others {
		return nil // rows of a run that is under way; a later one drops the table
	}
	return again(ctx, func() error { return table.Drop(ctx) })
}

// claimTable makes the pump's table if it is not there, and says in it that this run has.
func (tr *trial) claimTable(ctx context.Context, t *target) error {
	a, err := tr.open(t, partPump)
	if err != nil {
		return err
	}
	re, err := ask(ctx, a, question{service: "table", path: "/" + pumpTable + "()", query: url.Values{"$top": {"1"}}})
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
	row := storage.Entity{Partition: tr.prefix, Row: madeRow}
	_, err = a.Table(pumpTable).Write(ctx, storage.Write{Mode: storage.Upsert, Entity: row})
	return err
}
