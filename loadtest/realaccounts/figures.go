package realaccounts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// figureRequests is how many requests of each kind are timed in each account.
const figureRequests = 60

// figures times requests of each account, one after the other: what a request takes from here.
func (r *runner) figures(ctx context.Context) error {
	for _, t := range r.targets {
		if err := r.figuresOf(ctx, t); err != nil {
			return fmt.Errorf("account %s: %w", t.name, err)
		}
	}
	return nil
}

func (r *runner) figuresOf(ctx context.Context, t *target) error {
	a, err := r.open(t, partFigures, nil)
	if err != nil {
		return err
	}
	q := a.Queue(r.prefix + "f")
	if err := q.Create(ctx); err != nil {
		return err
	}
	message := []byte(randomText(1 << 10))
	var receipts []storage.Receipt
	for _, kind := range []struct {
		name string
		do   func() error
	}{
		{"put 1 KiB", func() error { _, err := q.Put(ctx, message, 0); return err }},
		{"get 1 message", func() error {
			ms, err := q.Get(ctx, 1, time.Hour)
			for _, m := range ms {
				receipts = append(receipts, m.Receipt)
			}
			return err
		}},
		{"delete", func() error {
			if len(receipts) == 0 {
				return errors.New("the gets have brought no message")
			}
			receipt := receipts[0]
			receipts = receipts[1:]
			return q.Delete(ctx, receipt)
		}},
	} {
		var took []time.Duration
		for range figureRequests {
			if kind.name == "delete" && len(receipts) == 0 {
				break
			}
			began := time.Now()
			if err := kind.do(); err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			took = append(took, time.Since(began))
		}
		if len(took) == 0 {
			return fmt.Errorf("%s: there was nothing to time", kind.name)
		}
		slices.Sort(took)
		r.report.Figures = append(r.report.Figures, Figure{
			Account: t.name, Request: kind.name, Requests: len(took),
			P50: milliseconds(quantile(took, 0.5)), P99: milliseconds(quantile(took, 0.99)),
		})
	}
	return nil
}

// quantile of sorted times.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// p50 is the median of a kind of request, over all accounts; 0 if it was not measured.
func (r *runner) p50(kind string) time.Duration {
	var sum float64
	n := 0
	for _, f := range r.report.Figures {
		if f.Request == kind {
			sum += f.P50
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return time.Duration(sum / float64(n) * float64(time.Millisecond))
}
