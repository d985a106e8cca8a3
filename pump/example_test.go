package pump_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// Distribute the lines of a file and handle each, here on two simulated
// accounts in this process. On Azure an account is just its ConnectionString.
func Example() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}, {Name: "two"}}})
	cfg := pump.Config{Workload: "cities"}
	for _, name := range sim.Accounts() {
		account, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString(name), Transport: sim.Transport()})
		if err != nil {
			log.Fatal(err)
		}
		cfg.Accounts = append(cfg.Accounts, pump.Account{Storage: account})
	}
	ctx := context.Background()

	dir, err := os.MkdirTemp("", "pump")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "cities.jsonl")
	if err := os.WriteFile(file, []byte(`{"city":"Oslo","people":709}
{"city":"Bern","people":134}
{"city":"Riga","people":605}
`), 0o600); err != nil {
		log.Fatal(err)
	}

	d, err := distributor.New(cfg, source.JSONLines(file, "city"), distributor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	sent, err := d.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}

	var bytes atomic.Int64
	handler := pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		bytes.Add(int64(len(t.Body))) // the work; it may be called for the same task again
		return nil
	})
	p, err := processor.New(cfg, handler, processor.Options{UntilIdle: 500 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	done, err := p.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sent.Tasks, "tasks sent,", done.Handled, "handled,", bytes.Load(), "bytes")
	// Output:
	// 3 tasks sent, 3 handled, 84 bytes
}
