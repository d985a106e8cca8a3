package workload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// A redrive puts a message home before it deletes it in quarantine. A redrive that ends between the
// two leaves the message in both places, and a later redrive puts it home again. So, in delivery
// mode once, a row says that a redrive of the message was begun: before the put, until the message
// is deleted. A row without its message has no meaning any more; ids of messages never come again.

// RedrivesPartition is where those rows of a workload stand.
func RedrivesPartition(workload string) string { return workload + ".redrives" }

// Redrive is a redrive of a message that was begun, and not ended as far as is known.
type Redrive struct {
	Begun time.Time // by the server's clock
	// Keeps is what the ledger kept of the task's run then.
	Keeps Keeping
}

// Keeping is what the ledger keeps of a run.
type Keeping int64

// What it may keep.
const (
	KeepsNothing Keeping = iota
	KeepsNumbers         // of tasks done before the run ended; tasks redriven since have names
	KeepsAll             // numbers and generations: the run lives
)

// RedriveKey is the key of a message's row.
func RedriveKey(account, message string) string {
	sum := sha256.Sum256([]byte(message))
	return account + "." + hex.EncodeToString(sum[:16])
}

// BeginRedrive notes that a redrive of a message begins. Before is the redrive that was begun
// earlier, or nil. After a lost answer it may be this redrive.
func BeginRedrive(
	ctx context.Context, t storage.Table, workload, key string, keeps Keeping,
) (before *Redrive, err error) {
	partition := RedrivesPartition(workload)
	err = row.InsistOn(ctx, t, storage.Write{Mode: storage.Insert, Entity: storage.Entity{
		Partition: partition, Row: key,
		Properties: map[string]any{row.FormatProperty: int64(row.Format), "Keeps": int64(keeps)},
	}})
	if !storage.Is(err, storage.Exists) {
		return nil, err
	}
	before = &Redrive{}
	err = row.Insist(ctx, t, partition, func(ctx context.Context) error {
		e, err := t.Read(ctx, partition, key)
		if err == nil {
			before.Begun = e.Modified
			keeps, _ := e.Properties["Keeps"].(int64)
			before.Keeps = Keeping(keeps)
		}
		return err
	})
	return before, err
}

// RedrivesBegun are the keys of the redrives that were begun and not ended.
func RedrivesBegun(ctx context.Context, t storage.Table, workload string) (map[string]bool, error) {
	all := storage.Query{Partition: RedrivesPartition(workload), Select: []string{row.FormatProperty}}
	rows, err := row.MustFind(ctx, t, all, -1)
	begun := make(map[string]bool, len(rows))
	for _, e := range rows {
		begun[e.Row] = true
	}
	return begun, err
}

// EndRedrives notes that redrives have ended, of at most [storage.MaxBatch] messages.
func EndRedrives(ctx context.Context, t storage.Table, workload string, keys ...string) error {
	var writes []storage.Write
	for _, key := range keys {
		e := storage.Entity{Partition: RedrivesPartition(workload), Row: key}
		writes = append(writes, storage.Write{Mode: storage.Remove, Entity: e})
	}
	if len(writes) == 0 {
		return nil
	}
	return row.RemoveAll(ctx, t, writes)
}
