package worlds

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// These worlds have leftovers of processes of a newer version: envelopes and rows of a format that
// is not known here. Our processes wait for both, loudly, and touch neither.

// What a newer version calls its format, and a property that no process here knows.
const (
	simFormat = "Format"
	simNovel  = "Novel"
)

// parseNewer reads "newer envelopes ACCOUNT" and "newer row PARTITION/BEGINNING SPAN".
func (s *simStep) parseNewer(args []string, accounts int) (err error) {
	switch {
	case len(args) == 2 && args[0] == "envelopes":
		err = checkSimAccount(args[1], accounts)
	case len(args) == 2 && args[0] == "member":
		err = checkSimName(args[1])
	case len(args) == 3 && args[0] == "row" && strings.Contains(args[1], "/"):
		s.span, err = simSpan(args[2])
	default:
		return errors.New("write: newer envelopes ACCOUNT, member PROCESS, row PARTITION/START SPAN")
	}
	s.who, s.order = args[0], args[1:2]
	return err
}

func (w *simWorld) newer(s simStep) {
	if s.who == "envelopes" {
		w.goes.Go(func() { w.newerEnvelopes(s) })
		return
	}
	if s.who == "member" {
		w.newerMember(s.order[0])
		return
	}
	w.lasts(s.span + simSent)
	w.goes.Go(func() { w.newerRow(s) })
}

// simNewer is a process of a newer version, as far as others see of it when it has died.
const simNewer = "p9"

// newerMember has a process die whose row as a member is of a newer format. No process here can
// read it; that it is silent all can see, and what it held must be claimed (A15).
func (w *simWorld) newerMember(name string) {
	w.mu.Lock()
	p := w.latest[name]
	w.mu.Unlock()
	if p == nil || p.over() {
		return
	}
	p.kill("as a newer version")
	w.goes.Go(func() {
		table, ctx := w.sure(w.sim.Accounts()[0]).Table(row.TableName), context.Background()
		for range 20 {
			e, err := table.Read(ctx, "work", "present."+name)
			if err == nil {
				e.Properties = map[string]any{simFormat: int64(2), simNovel: "of a newer version"}
				_, err = table.Write(ctx, storage.Write{Mode: storage.Merge, Entity: e})
			}
			if err == nil {
				w.count("members of a newer version that died")
				return
			}
			time.Sleep(time.Second)
		}
	})
}

// newerEnvelopes puts what a newer version would have made of messages that can be seen, into their queue.
func (w *simWorld) newerEnvelopes(s simStep) {
	q := w.sure(s.order[0]).Queue(fmt.Sprintf("work-%02d", w.roll(uint64(w.plan.queues), "newer queue", int(s.at))))
	ms, err := q.Peek(context.Background(), 4)
	if err != nil {
		return
	}
	for _, m := range ms {
		b, err := base64.StdEncoding.DecodeString(string(m.Text))
		if h, broken := codec.ReadHeader(m.Text); err != nil || broken != nil || h.Run == (codec.RunID{}) {
			continue
		}
		b[21] = codec.Version + 1
		putCRC(b[:headLen(b)])
		text := base64.StdEncoding.EncodeToString(b)
		if _, err := q.Put(context.Background(), []byte(text), 0); err == nil {
			w.mu.Lock()
			w.novel[text]++
			w.counts["envelopes of a newer version"]++
			w.mu.Unlock()
		}
	}
}

// newerRow has a row be one of a newer format for so long, unless it is one.
func (w *simWorld) newerRow(s simStep) {
	partition, begins, _ := strings.Cut(s.order[0], "/")
	table, ctx := w.sure(w.sim.Accounts()[0]).Table(row.TableName), context.Background()
	var rows []storage.Entity
	for e, err := range table.Query(ctx, storage.Query{Partition: partition, From: begins, To: begins + "~"}) {
		if err != nil {
			return
		}
		if !strings.HasPrefix(e.Row, "live.") { // a copy of what a run's row says, which is written with that
			rows = append(rows, e)
		}
	}
	if len(rows) == 0 {
		return
	}
	e := rows[w.roll(uint64(len(rows)), "newer row", int(s.at))]
	if !w.becomes(partition+"/"+e.Row, true) {
		return
	}
	defer w.becomes(partition+"/"+e.Row, false)
	set := func(format int64, tag storage.ETag) error {
		_, err := table.Write(ctx, storage.Write{Mode: storage.Merge, Entity: storage.Entity{
			Partition: partition, Row: e.Row, ETag: tag, Properties: map[string]any{simFormat: format, simNovel: "of a newer version"},
		}})
		return err
	}
	if set(2, e.ETag) != nil {
		return // it has changed meanwhile
	}
	w.count("rows of a newer format in " + strings.TrimRight(partition, "0123456789"))
	time.Sleep(s.span)
	for {
		now, err := table.Read(ctx, partition, e.Row)
		switch {
		case storage.Is(err, storage.Gone):
			w.wrongf("lost: row %s/%s, which is of a newer format, was removed", partition, e.Row)
			return
		case err != nil: // too many requests
		case now.Properties[simFormat] != int64(2) || now.Properties[simNovel] == nil:
			w.wrongf("lost: row %s/%s, which is of a newer format, was written over", partition, e.Row)
			return
		case set(1, now.ETag) == nil:
			return
		}
		time.Sleep(time.Second)
	}
}

// becomes notes that a row is of a newer format, or is not any more; false: it was so before.
func (w *simWorld) becomes(row string, newer bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.newest[row]
	w.newest[row] = newer
	return was != newer
}

// waiting is how many messages of the work queues wait for a newer version.
func (w *simWorld) waiting() (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, times := range w.novel {
		n += int64(times)
	}
	return n
}

// checkNewer takes what waits for a newer version: all of it is there, and nothing else.
func (w *simWorld) checkNewer(ctx context.Context) {
	if len(w.novel) == 0 {
		return
	}
	waits.Wait(ctx, 2*time.Minute+w.judge.back) // it was put back for a minute
	found := map[string]bool{}
	for _, q := range w.queues() {
		for {
			ms, err := q.Get(ctx, storage.MaxGet, time.Hour)
			if storage.Is(err, storage.Throttled) {
				time.Sleep(time.Second)
				continue
			}
			if err != nil || len(ms) == 0 {
				break
			}
			for _, m := range ms {
				if w.novel[string(m.Text)] == 0 {
					w.wrongf("a message was left in %s that no newer version has put", q.Name())
				}
				found[string(m.Text)] = true
			}
		}
	}
	for text := range w.novel {
		if !found[text] {
			w.wrongf("lost: an envelope of a newer version is in no work queue")
		}
	}
}
