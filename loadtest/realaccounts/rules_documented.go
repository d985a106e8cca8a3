package realaccounts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Rules that are documented or recorded, but that no test has ever seen, because Azurite differs
// from Azure. The ids are those of "Azurite beside Azure" in azsim/AZURE.md.

func put(queue, body string, query url.Values) question {
	return question{
		method: http.MethodPost, path: "/" + queue + "/messages", query: query, header: xmlHeader,
		body: body,
	}
}

func get(queue string, query url.Values) question {
	return question{path: "/" + queue + "/messages", query: query}
}

var documentedRules = []rule{
	{
		id: "ttl", mark: "DOC", part: partRules,
		says: "times to live of 0 and -2, and a visibility of 7 days beside the default " +
			"of 7 days (Q11, Q12, Q15)",
		ask: onQueue([]string{"0", "-2", "visible in 7 days"}, func(q string) []question {
			return []question{
				put(q, text("x"), url.Values{"messagettl": {"0"}}),
				put(q, text("x"), url.Values{"messagettl": {"-2"}}),
				put(q, text("x"), url.Values{"visibilitytimeout": {"604800"}}),
			}
		}),
	},
	{
		id: "bodies", mark: "DOC", part: partRules,
		says: "broken XML in a put is 400 InvalidXmlDocument (Q31)",
		ask: onQueue([]string{"broken XML"}, func(q string) []question {
			return []question{put(q, "<QueueMessage><MessageText>x</MessageText>", nil)}
		}),
	},
	{
		id: "gets", mark: "DOC", part: partRules,
		says: "a get of 0, of 33, for 0 s and for more than 7 days (Q32 to Q36)",
		ask: onQueue([]string{"0", "33", "0 s", "604,801 s"}, func(q string) []question {
			return []question{
				get(q, url.Values{"numofmessages": {"0"}}), get(q, url.Values{"numofmessages": {"33"}}),
				get(q, url.Values{"visibilitytimeout": {"0"}}),
				get(q, url.Values{"visibilitytimeout": {"604801"}}),
			}
		}),
	},
	{
		id: "superseded-receipt", mark: "DOC", part: partRules, ask: withQueue(askReceipts),
		says: "a superseded pop receipt is 404 MessageNotFound, one that is none 400 " +
			"InvalidQueryParameterValue (Q47, Q53)",
	},
	{
		id: "update-parameters", mark: "DOC", part: partRules,
		says: "an update without visibility or receipt is 400 MissingRequiredQueryParameter (Q57, Q58)",
		ask: onQueue([]string{"no visibility", "no receipt"}, func(q string) []question {
			path := "/" + q + "/messages/f7bff1d3-3b0b-4b38-9e1c-5e2e8a1f0f00"
			return []question{
				{
					method: http.MethodPut, path: path,
					query: url.Values{"popreceipt": {"AgAAAAMAAAAAAAAAMhKHpEdo1QE="}}, header: xmlHeader,
					body: text("x"),
				},
				{
					method: http.MethodPut, path: path, query: url.Values{"visibilitytimeout": {"1"}},
					header: xmlHeader, body: text("x"),
				},
			}
		}),
	},
	{
		id: "clamped-lease", mark: "REC", part: partRules, ask: withQueue(askClamp),
		says: "a lease ends no later than its message (Q61)",
	},
	{
		id: "old-date", mark: "DOC", part: partRules,
		says: "a date 20 minutes old is 403 AuthenticationFailed (Q73)",
		ask: func(ctx context.Context, p *prober) (string, string, error) {
			return dates(ctx, p, []string{"queues", "tables"}, dated("queue", -20*time.Minute),
				dated("table", -20*time.Minute))
		},
	},
	{
		id: "entity-bounds", mark: "DOC", part: partRules, ask: askEntities,
		says: "an entity over 1 MiB is EntityTooLarge, one of 253 properties " +
			"TooManyProperties (T28, T29)",
	},
	{
		id: "entity-conditions", mark: "DOC", part: partRules,
		says: "a delete without If-Match, a PUT with If-None-Match, " +
			"keys in the body that contradict the address (T22, T53, T54)",
		ask: onTable([]string{"delete", "If-None-Match", "other keys"}, func(table string) []question {
			path := "/" + table + "(PartitionKey='p',RowKey='r')"
			none := map[string]string{"Content-Type": "application/json", "If-None-Match": "*"}
			return []question{
				{service: "table", method: http.MethodDelete, path: path},
				{
					service: "table", method: http.MethodPut, path: path, header: none,
					body: `{"PartitionKey":"p","RowKey":"r"}`,
				},
				{
					service: "table", method: http.MethodPut, path: path, header: jsonHeader,
					body: `{"PartitionKey":"p","RowKey":"other"}`,
				},
			}
		}),
	},
	{
		id: "filter-function", mark: "DOC", part: partRules,
		says: "a function in $filter is refused (T41)",
		ask: onTable([]string{"startswith"}, func(table string) []question {
			return []question{
				{
					service: "table", path: "/" + table + "()",
					query: url.Values{"$filter": {"startswith(RowKey,'r')"}},
				},
			}
		}),
	},
	{
		id: "wire", mark: "REC", part: partRules, ask: askWire,
		says: "XML begins with a byte order mark; errors of tables have no x-ms-error-code (A1)",
	},
}

func askReceipts(ctx context.Context, p *prober, q storage.Queue) (string, string, error) {
	if _, err := q.Put(ctx, []byte("x"), 0); err != nil {
		return "", "", err
	}
	ms, err := q.Get(ctx, 1, time.Hour)
	if err != nil || len(ms) != 1 {
		return "", "", errors.Join(err, fmt.Errorf("got %d messages", len(ms)))
	}
	if _, err := q.Renew(ctx, ms[0].Receipt, time.Hour); err != nil {
		return "", "", err
	}
	remove := func(receipt string) question {
		return question{
			method: http.MethodDelete, path: "/" + q.Name() + "/messages/" + ms[0].ID,
			query: url.Values{"popreceipt": {receipt}},
		}
	}
	return joined(ctx, p, []string{"superseded", "none"}, remove(ms[0].PopReceipt), remove("none"))
}

// askClamp gets a message for longer than it lives.
func askClamp(ctx context.Context, p *prober, q storage.Queue) (string, string, error) {
	re, err := p.ask(ctx, put(q.Name(), text("x"), url.Values{"messagettl": {"600"}}))
	if err != nil || re.status != http.StatusCreated {
		return "", "", errors.Join(err, errors.New("put: "+re.answer()))
	}
	ms, err := q.Get(ctx, 1, time.Hour)
	if err != nil || len(ms) != 1 {
		return "", "", errors.Join(err, fmt.Errorf("got %d messages", len(ms)))
	}
	lease := ms[0].NextVisible.Sub(ms[0].Inserted)
	if lease < 20*time.Minute {
		return "it ends with the message", lease.String(), nil
	}
	return "it goes on beyond the message", lease.String(), nil
}

func askEntities(ctx context.Context, p *prober) (string, string, error) {
	t, err := p.table(ctx)
	if err != nil {
		return "", "", err
	}
	large, many := keys("p", "large"), keys("p", "many")
	for i := range 20 { // of 60 KB each as UTF-16
		large["F"+strconv.Itoa(i)] = strings.Repeat("f", 30_000)
	}
	for i := range 253 {
		many["F"+strconv.Itoa(i)] = i
	}
	return joined(ctx, p, []string{"1.2 MB", "253 properties"}, insert(t.Name(), large),
		insert(t.Name(), many))
}

func askWire(ctx context.Context, p *prober) (string, string, error) {
	list, err := p.ask(ctx, question{
		path: "/", query: url.Values{"comp": {"list"}, "maxresults": {"1"}},
	})
	if err != nil {
		return "", "", err
	}
	missing, err := p.ask(ctx, question{service: "table", path: "/" + p.name() + "()"})
	if err != nil {
		return "", "", err
	}
	say := func(has bool, what string) string {
		if has {
			return what
		}
		return "no " + what
	}
	return say(strings.HasPrefix(string(list.body), "\ufeff"), "mark") + "; " +
			say(missing.header.Get("x-ms-error-code") != "", "x-ms-error-code") + " of a table",
		missing.answer(), nil
}
