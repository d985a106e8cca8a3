package testworld

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// ManyRun makes the row of an open run; there may be thousands.
func (w *World) ManyRun() pump.RunID {
	w.many++
	id := pump.RunID{0xee, 13: byte(w.many >> 16), 14: byte(w.many >> 8), 15: byte(w.many)}
	proof.Must(w.T, w.AllRuns().Create(w.T.Context(), workload.Run{ID: id}))
	return id
}

// OneTask makes a run of one task in a segment, puts it, and seals the run.
func (w *World) OneTask(segment uint32) pump.RunID {
	id := w.ManyRun()
	w.putFirst(id, segment)
	counts := make([]uint64, w.Segments())
	counts[segment] = 1
	proof.Must(w.T, w.AllRuns().Seal(w.T.Context(), id, counts))
	return id
}

// Lonely makes the run of a client that dies after one put, and puts its one task.
func (w *World) Lonely(id byte, segment uint32) pump.RunID {
	run := pump.RunID{0xab, 15: id}
	proof.Must(w.T, w.AllRuns().Create(w.T.Context(),
		workload.Run{ID: run, Mode: "client", Beat: 15 * time.Second}))
	w.putFirst(run, segment)
	return run
}

// putFirst puts the first task of a run in a segment.
func (w *World) putFirst(run pump.RunID, segment uint32) {
	account, queue := w.Home(segment)
	w.PutText(account, queue, w.Text(segment, func(h *codec.Header) { h.Run = run }, 0))
}

// ClosesFor has a closer look for so long.
func (w *World) ClosesFor(c *closing.Closer, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(closing.Every) {
		MustPass(w.T, c)
	}
}

// DamageHead writes a row of the first ledger partition over that makes no sense.
func (w *World) DamageHead(head string) {
	junk := map[string]any{"Format": int64(1), "Counts": []byte{1, 2, 3}, "Records": []byte{9, 9}}
	e := storage.Entity{Partition: "work.ledger.00", Row: head, Properties: junk}
	_, err := w.Table().Write(w.T.Context(), storage.Write{Mode: storage.Upsert, Entity: e})
	proof.Must(w.T, err)
}

// HasRow reports whether an account has a row of the workload.
func (w *World) HasRow(i int) bool {
	table := w.Cfg.Accounts[i].Storage.Table(row.TableName)
	_, err := workload.Load(w.T.Context(), table, w.Cfg.Workload)
	if !errors.Is(err, pump.ErrNoWorkload) {
		proof.Must(w.T, err)
	}
	return err == nil
}

// Crash makes the network swallow all that an instance sends from now on: to everybody else it is
// dead.
func (w *World) Crash(instance string) *azsim.Injection {
	return w.Sim.Inject(azsim.Rule{Instance: instance, Fault: azsim.FailBefore})
}

// Empty takes everything out of the work queues for good, as an account does that loses its data.
func (w *World) Empty() {
	for _, s := range setup.Shards(w.Cfg) {
		for q := w.Queue(s.Account, s.Queue); ; {
			ms, err := q.Get(w.T.Context(), storage.MaxGet, time.Minute)
			proof.Must(w.T, err)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				proof.Must(w.T, q.Delete(w.T.Context(), m.Receipt))
			}
		}
	}
}

// Status is what an operator sees.
func (w *World) Status(o status.Options) *status.Status {
	w.T.Helper()
	s, err := status.Read(w.T.Context(), w.Operator(), o)
	proof.Must(w.T, err)
	return s
}

// Newest is the run that was begun last.
func (w *World) Newest() pump.RunID {
	w.T.Helper()
	all, err := w.AllRuns().List(w.T.Context(), 1)
	proof.Must(w.T, err)
	return all[0].ID
}

// Refused checks that an error is an accounts.Error with a text, and says nothing of storage.
func Refused(t *testing.T, err error, text string) *accounts.Error {
	t.Helper()
	e, ok := errors.AsType[*accounts.Error](err)
	if !ok || !strings.Contains(err.Error(), text) || err.Error() != e.Error() {
		t.Fatalf("%v is no refusal with %q", err, text)
	}
	return e
}
