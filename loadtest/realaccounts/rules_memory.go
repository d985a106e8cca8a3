package realaccounts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// The rules that rest on memory, on inference or on a choice of the simulator. They are those that
// azsim/AZURE.md lists under "What rests on memory".

// onTable asks questions about a table that is made for them.
func onTable(about []string, questions func(table string) []question) asking {
	return func(ctx context.Context, p *prober) (string, string, error) {
		t, err := p.table(ctx)
		if err != nil {
			return "", "", err
		}
		return joined(ctx, p, about, questions(t.Name())...)
	}
}

// onQueue asks questions about a queue that is made for them.
func onQueue(about []string, questions func(queue string) []question) asking {
	return withQueue(func(ctx context.Context, p *prober, q storage.Queue) (string, string, error) {
		return joined(ctx, p, about, questions(q.Name())...)
	})
}

// withQueue asks with a queue that is made for it.
func withQueue(
	ask func(context.Context, *prober, storage.Queue) (answer, detail string, err error),
) asking {
	return func(ctx context.Context, p *prober) (string, string, error) {
		q, err := p.queue(ctx)
		if err != nil {
			return "", "", err
		}
		return ask(ctx, p, q)
	}
}

func keys(partition, row string) map[string]any {
	return map[string]any{"PartitionKey": partition, "RowKey": row}
}

func top(n string) func(table string) []question {
	return func(table string) []question {
		return []question{{service: "table", path: "/" + table + "()", query: url.Values{"$top": {n}}}}
	}
}

var tableRules = []rule{
	{
		id: "key-too-long", mark: "MEM", part: partRules,
		says: "a key over 512 characters is 400 KeyValueTooLarge",
		ask: onTable([]string{"512 characters", "a partition key of 513", "a row key of 513"},
			func(table string) []question {
				long := strings.Repeat("k", 513)
				return []question{
					insert(table, keys(long[1:], "r")), insert(table, keys(long, "r")),
					insert(table, keys("p", long)),
				}
			}),
	},
	{
		id: "top-zero", mark: "MEM", part: partRules, says: "$top of 0 is 400 InvalidInput",
		ask: onTable([]string{"$top=0"}, top("0")),
	},
	{
		id: "top-over-1000", mark: "MEM", part: partRules, says: "$top over 1,000 is 400 InvalidInput",
		ask: onTable([]string{"$top=1001"}, top("1001")),
	},
}

var batchRules = []rule{
	{
		id: "batch-two-partitions", mark: "MEM", part: partRules,
		says: "a batch over two partitions is refused with CommandsInBatchActOnDifferentPartitions",
		ask: onBatch(func(table, _ string) []change {
			return []change{
				{table: table, partition: "p", row: "1"}, {table: table, partition: "q", row: "2"},
			}
		}),
	},
	{
		id: "batch-two-tables", mark: "MEM", part: partRules,
		says: "a batch over two tables is refused with CommandsInBatchActOnDifferentPartitions",
		ask: onBatch(func(table, other string) []change {
			return []change{
				{table: table, partition: "p", row: "1"}, {table: other, partition: "p", row: "2"},
			}
		}),
	},
	{
		id: "batch-index", mark: "INF", part: partRules,
		says: "the text of a batch that is too long begins with the index of the " +
			"change that breaks the rule",
		ask: onBatch(func(table, _ string) []change {
			var changes []change
			for i := range 101 {
				changes = append(changes, change{table: table, partition: "p", row: fmt.Sprint(i)})
			}
			return changes
		}),
	},
	{
		id: "batch-over-4-mib", mark: "INF", part: partRules,
		says: "a batch of more than 4 MiB is 413 for the whole of it",
		ask: onBatch(func(table, _ string) []change {
			var changes []change
			for i := range 6 {
				changes = append(changes, change{table, "p", fmt.Sprint(i), strings.Repeat("f", 900_000)})
			}
			return changes
		}),
	},
}

// onBatch asks for a batch of changes, of one table or of two.
func onBatch(changes func(table, other string) []change) asking {
	return func(ctx context.Context, p *prober) (string, string, error) {
		t, err := p.table(ctx)
		if err != nil {
			return "", "", err
		}
		list := changes(t.Name(), "")
		if slices.ContainsFunc(list, func(c change) bool { return c.table == "" }) {
			other, err := p.table(ctx)
			if err != nil {
				return "", "", err
			}
			list = changes(t.Name(), other.Name())
		}
		re, err := p.ask(ctx, p.batch(list...))
		return re.batchAnswer(), "", err
	}
}

var queueRules = []rule{
	{
		id: "update-keeps-text", mark: "INF", part: partRules,
		says: "an update without a body keeps the text",
		ask: withQueue(func(ctx context.Context, p *prober, q storage.Queue) (string, string, error) {
			r, err := q.Put(ctx, []byte("kept"), 0)
			if err != nil {
				return "", "", err
			}
			re, err := p.ask(ctx, question{
				method: http.MethodPut, path: "/" + q.Name() + "/messages/" + r.ID,
				query: url.Values{"popreceipt": {r.PopReceipt}, "visibilitytimeout": {"0"}},
			})
			if err != nil {
				return "", "", err
			}
			ms, err := q.Peek(ctx, 1)
			if err != nil || len(ms) != 1 {
				return "", "", errors.Join(err, fmt.Errorf("%d messages are there after it", len(ms)))
			}
			return fmt.Sprintf("%s; the text is %q", re.answer(), ms[0].Text), "", nil
		}),
	},
	{
		id: "lost-get-hides", mark: "INF", part: partRules,
		says: "messages of a get whose answer is lost stay hidden for the lease (D5)",
		ask: withQueue(func(ctx context.Context, p *prober, q storage.Queue) (string, string, error) {
			for range 3 {
				if _, err := q.Put(ctx, []byte("x"), 0); err != nil {
					return "", "", err
				}
			}
			first, err := q.Get(ctx, storage.MaxGet, time.Hour) // its answer is not used
			if err != nil {
				return "", "", err
			}
			second, err := q.Get(ctx, storage.MaxGet, time.Hour)
			return fmt.Sprintf("the first get has %d, the same again has %d", len(first), len(second)), "",
				err
		}),
	},
	{
		id: "delete-again", mark: "INF", part: partRules,
		says: "a delete that is sent again after its own success is 404 MessageNotFound (D6)",
		ask: withQueue(func(ctx context.Context, p *prober, q storage.Queue) (string, string, error) {
			r, err := q.Put(ctx, []byte("x"), 0)
			if err != nil {
				return "", "", err
			}
			again := question{
				method: http.MethodDelete, path: "/" + q.Name() + "/messages/" + r.ID,
				query: url.Values{"popreceipt": {r.PopReceipt}},
			}
			return joined(ctx, p, []string{"first", "again"}, again, again)
		}),
	},
}

var serviceRules = []rule{
	{
		id: "future-date", mark: "INF", part: partRules,
		says: "a date more than 15 minutes in the future is refused like an old one",
		ask: func(ctx context.Context, p *prober) (string, string, error) {
			return dates(
				ctx, p, []string{"queues, in 5 minutes", "queues, in 20 minutes", "tables, in 20 minutes"},
				dated("queue", 5*time.Minute), dated("queue", 20*time.Minute), dated("table", 20*time.Minute),
			)
		},
	},
	{
		id: "versions", mark: "MEM", part: partRules, ask: askVersions,
		says: "the values of x-ms-version that the simulator takes are those that exist",
	},
	{
		id: "unknown-account", mark: "INF", part: partRules, want: "its name does not resolve",
		says: "the host name of an account that does not exist does not resolve",
		ask: func(ctx context.Context, p *prober) (string, string, error) {
			u, err := url.Parse(p.account.Endpoint())
			if err != nil {
				return "", "", err
			}
			if !p.hosted {
				return "", "",
					undecided("the account stands in the path of its address, as those of emulators do")
			}
			_, rest, _ := strings.Cut(u.Hostname(), ".")
			found, err := net.DefaultResolver.LookupHost(ctx, p.prefix+"."+rest)
			var missing *net.DNSError
			switch {
			case errors.As(err, &missing) && missing.IsNotFound:
				return "its name does not resolve", "", nil
			case err != nil:
				return "", "", undecided("the name could not be looked up: " + err.Error())
			}
			return "its name resolves", fmt.Sprintf("to %d addresses", len(found)), nil
		},
	},
}

// dates asks questions with dates, if dates count.
func dates(
	ctx context.Context, p *prober, about []string, questions ...question,
) (string, string, error) {
	if !p.keyed {
		return "", "", undecided(
			"dates count in requests that a key signs, and this account is not opened by its key")
	}
	return joined(ctx, p, about, questions...)
}

// dated asks for a list, with a date that is off.
func dated(service string, off time.Duration) question {
	q := question{
		service: service, path: "/", query: url.Values{"comp": {"list"}, "maxresults": {"1"}},
		header: map[string]string{"x-ms-date": time.Now().UTC().Add(off).Format(http.TimeFormat)},
	}
	if service == "table" {
		q.path, q.query = "/Tables", url.Values{"$top": {"1"}}
	}
	return q
}

// versions are what the simulator takes (azsim/version.go), and two that it does not.
var (
	versions = strings.Fields(`
		2009-04-14 2009-07-17 2009-09-19 2011-08-18 2012-02-12 2013-08-15 2014-02-14 2015-02-21
		2015-04-05 2015-07-08 2015-12-11 2016-05-31 2017-04-17 2017-07-29 2017-11-09 2018-03-28
		2018-11-09 2019-02-02 2019-07-07 2019-10-10 2019-12-12 2020-02-10 2020-04-08 2020-06-12
		2020-08-04 2020-10-02 2020-12-06 2021-02-12 2021-04-10 2021-06-08 2021-08-06 2021-10-04
		2021-12-02 2022-11-02 2023-01-03 2023-05-03 2023-08-03 2023-11-03 2024-02-04 2024-05-04
		2024-08-04 2024-11-04 2025-01-05 2025-05-05 2025-07-05 2025-11-05 2026-02-06 2026-04-06`)
	noVersions = []string{"2019-02-03", "2099-01-01"}
)

// askVersions asks both services in each version which is there. A version that is there may be
// refused for another reason: the oldest are signed otherwise.
func askVersions(ctx context.Context, p *prober) (string, string, error) {
	if p.pinned {
		return "", "", undecided(versionName + " sets the version of each request")
	}
	var unknown, refused []string
	for _, version := range append(slices.Clone(versions), noVersions...) {
		for _, service := range []string{"queue", "table"} {
			q := dated(service, 0)
			q.header = map[string]string{"x-ms-version": version}
			re, err := p.ask(ctx, q)
			if err != nil {
				return "", "", err
			}
			of := service + "s " + version
			switch {
			case re.code() == "InvalidHeaderValue":
				unknown = append(unknown, of)
			case re.status >= 300:
				refused = append(refused, of+": "+re.answer())
			}
		}
	}
	return "unknown: " + strings.Join(unknown, ", "), strings.Join(refused, "; "), nil
}

var namesRules = []rule{
	{
		id: "table-name-free", mark: "INF", part: partRules,
		says: "the name of a deleted table is free after 30 s, as documented for queues",
		ask: func(ctx context.Context, p *prober) (string, string, error) {
			t, err := p.table(ctx)
			if err != nil {
				return "", "", err
			}
			return freeAfter(ctx, t.Drop, t.Create)
		},
	},
	{
		id: "queue-name-free", mark: "DOC", part: partRules,
		says: "the name of a deleted queue cannot be used for 30 s at least",
		ask: withQueue(func(ctx context.Context, p *prober, q storage.Queue) (string, string, error) {
			return freeAfter(ctx, q.Drop, q.Create)
		}),
	},
}

// freeAfter drops a name and tries to make it again, until that is done.
func freeAfter(
	ctx context.Context, drop, create func(context.Context) error,
) (string, string, error) {
	if err := drop(ctx); err != nil {
		return "", "", err
	}
	began, code := time.Now(), ""
	var taken time.Duration // when the last request was sent that was refused
	for {
		sent := time.Since(began)
		err := create(ctx)
		e, refused := errors.AsType[*storage.Error](err)
		switch {
		case err == nil && code == "":
			return "at once", "", nil
		case err == nil:
			detail := fmt.Sprintf("taken after %.0f s, free after %.0f s", taken.Seconds(), sent.Seconds())
			return code + " for " + roughly(taken, sent), detail, nil
		case !refused || e.Code != storage.Missing:
			return "", "", err
		case sent > 2*time.Minute:
			return code + " for more than two minutes", "", nil
		}
		code, taken = fmt.Sprintf("%d %s", e.Status, e.Service), sent
		if err := wait(ctx, 2*time.Second); err != nil {
			return "", "", err
		}
	}
}

// roughly tells the 30 s that are documented for queues from the 40 s that are said of tables, also
// on a machine that stands still for seconds: by then the name was taken, or it was not.
func roughly(taken, free time.Duration) string {
	switch {
	case free < 20*time.Second:
		return "less than 30 s"
	case taken < 33*time.Second:
		return "30 s"
	case taken < 50*time.Second:
		return "some 40 s"
	}
	return "more than 50 s"
}
