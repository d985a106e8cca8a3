package azure

import (
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
)

// Every request that the driver can make, to queues and tables, asks for the version that is
// set, also within a batch.
func TestEveryRequestAsksForTheServiceVersionThatIsSet(t *testing.T) {
	for op, request := range requests {
		for _, connection := range []string{testConnection, "AccountName=acct;SharedAccessSignature=" + testSAS} {
			f := &fake{status: 500}
			a, err := Open(Options{ConnectionString: connection, Transport: f, ServiceVersion: "2018-11-09"})
			must(t, err)
			_ = request(t.Context(), a)
			if got := f.last.Header.Values("X-Ms-Version"); len(got) != 1 || got[0] != "2018-11-09" || len(f.last.Header[strings.ToLower("X-Ms-Version")]) > 0 {
				t.Errorf("%s: the version asked for is %v", op, got)
			}
			n := strings.Count(f.sent, "x-ms-version: 2018-11-09")
			proof.Same(t, strings.Count(f.sent, "x-ms-version:"), n, op, "and its parts ask for it", f.sent)
		}
	}
}

func TestAnOldServiceVersionWorksAndAnUnknownOneIsExplained(t *testing.T) {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "acct"}}})
	open := func(version string) storage.Account {
		a, err := Open(Options{ConnectionString: sim.ConnectionString("acct"), Transport: sim.Transport(), ServiceVersion: version})
		must(t, err)
		return a
	}
	old := open("2017-11-09")
	q, table := old.Queue("queue"), old.Table("table1")
	must(t, q.Create(t.Context()))
	must(t, table.Create(t.Context()))
	write := storage.Write{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "r", Properties: map[string]any{"A": "x"}}}
	must(t, proof.ErrOf(table.Transact(t.Context(), []storage.Write{write})))
	for _, ask := range []func(storage.Account) error{
		func(a storage.Account) error { _, err := a.Queue("queue").Count(t.Context()); return err },
		func(a storage.Account) error { return a.Table("table2").Create(t.Context()) },
	} {
		if err := ask(open("2030-01-01")); !storage.Is(err, storage.Invalid) || !strings.Contains(err.Error(), "set serviceVersion") {
			t.Errorf("of a version that the service does not know: %v", err)
		}
	}
}

func TestAMalformedServiceVersionIsRefusedBeforeAnyRequest(t *testing.T) {
	for _, version := range []string{"2019-7-7", "20190707", "newest", "2019-13-01", "2016-05-31", " 2019-07-07"} {
		_, err := Open(Options{ConnectionString: testConnection, ServiceVersion: version})
		if err == nil || !strings.Contains(err.Error(), "serviceVersion") || !strings.Contains(err.Error(), "2019-07-07, or leave it out") {
			t.Errorf("%q: %v", version, err)
		}
	}
}
