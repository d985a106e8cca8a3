package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

func TestASenderWithANameGoesOnWhereItsProgramDied(t *testing.T) {
	for seed := range uint64(4) {
		testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			const n = 3000
			w.Engine.BarrierAge = time.Second
			s := &testworld.ListSource{N: n}
			reader, err := s.Open(t.Context(), nil)
			proof.Must(t, err)
			var tasks []source.Record
			for range n {
				rec, err := reader.Next(t.Context())
				proof.Must(t, err)
				tasks = append(tasks, rec)
			}
			random := rand.New(rand.NewPCG(seed, 30))
			var last distributor.Summary
			for life := 1; last.Run.IsZero(); life++ {
				who := fmt.Sprintf("s%d", life)
				sender, err := distributor.NewSender(w.Config(who, 2), distributor.SenderOptions{Name: "book"})
				proof.Must(t, err)
				if life == 1 {
					if err := sender.Send(t.Context(), tasks[0]); err == nil {
						t.Error("it sends before it knows from where")
					}
				}
				from, err := sender.Acknowledged(t.Context())
				proof.Must(t, err)
				dies := from + 1 + random.Int64N(1500)
				if life > 5 {
					dies = n
				}
				for at := from; at < min(dies, n) && err == nil; at += 10 {
					err = sender.Send(t.Context(), tasks[at:min(at+10, n)]...)
					time.Sleep(10 * time.Millisecond)
				}
				proof.Must(t, err)
				if dies < n {
					w.Crash(who)
					ended, cancel := context.WithCancel(t.Context())
					cancel()
					_, _ = sender.Close(ended)
					continue
				}
				last, err = sender.Close(t.Context())
				proof.Must(t, err)
			}
			w.Collect().Expect(t, w.Segments(), last.Run, s, n, -1)
			if row := w.RunRow(last.Run); row.State != workload.RunSealed || row.Tasks != n || row.Name != "book" {
				t.Errorf("seed %d: the run's row: %+v", seed, row)
			}
			again, err := distributor.NewSender(w.Config("again", 2), distributor.SenderOptions{Name: "book"})
			proof.Must(t, err)
			if sent, err := again.Acknowledged(t.Context()); sent != n || !errors.Is(err, pump.ErrRunState) {
				t.Errorf("after its end: %d, %v", sent, err)
			}
			_, _ = again.Close(t.Context())
		})
	}
}
