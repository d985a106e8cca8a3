package processor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/pumptest"
	"github.com/queuepump/queuepump/pump/source"
)

type parcel struct {
	Item  string
	Parts []struct{ Count int }
	Due   time.Time
}

func TestABodyThatDoesNotDecodeIsRejectedAtOnceAndSaysWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		h := processor.JSON(func(ctx context.Context, o parcel) error {
			is := processor.TaskOf(ctx)
			seen = append(seen, o.Item, string(is.Key), is.ID)
			return nil
		})
		w := pumptest.New(t, pump.Config{}, h, processor.Options{Concurrency: 1})
		w.Send(
			source.Record{Key: []byte("k"), ID: "i", Body: []byte(`{"item":"cup","more":1}`)},
			[]byte("no json"), nil, []byte(`{"Parts":[{"Count":"x"}]}`),
			[]byte(`{"Item":"a","Due":"soon"}`), []byte(`{"Item":`),
		)
		w.Advance(time.Minute)
		w.Done(1)
		w.Retried(0)
		w.Quarantined(5, "the body does not decode into processor_test.parcel: ")
		w.Quarantined(1, "invalid character 'o' in literal null (expecting 'u'), at byte 2")
		w.Quarantined(1, "it is null")
		w.Quarantined(1, `field "Parts.Count": a string does not fit int`)
		w.Quarantined(1, `field "Due": parsing time`)
		w.Quarantined(1, "unexpected end of JSON input, at byte 8")
		proof.Same(t, strings.Join(seen, ","), "cup,k,i", "the handler saw")
	})
}

// both is a handler of batches.
type both struct{ pump.Handler }

func (both) HandleBatch(_ context.Context, tasks []*pump.Task) []error {
	errs := make([]error, len(tasks))
	for i, t := range tasks {
		if string(t.Body) == "bad" {
			errs[i] = pump.Reject(errors.New("bad"))
		}
	}
	return errs
}

func TestMiddlewareSeesEachCallInItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		use := func(name string) processor.Middleware {
			return func(ctx context.Context, tasks []*pump.Task, next processor.Next) []error {
				said = append(said, name)
				errs := next(ctx, tasks)
				for i, t := range tasks {
					is, _ := pump.OutcomeOf(errs[i])
					said = append(said, name+" "+string(t.Body)+" "+string(is))
				}
				if name == "outer" && len(tasks) == 2 {
					return nil // it knows better
				}
				return errs
			}
		}
		w := pumptest.New(t, pump.Config{}, both{}, processor.Options{
			Concurrency: 1, Use: []processor.Middleware{use("outer"), use("inner")},
		})
		same := []byte("key")
		w.Send(source.Record{Key: same, Body: []byte("good")}, source.Record{Key: same, Body: []byte("bad")})
		w.Advance(time.Minute)
		w.Done(2)
		w.Send([]byte("bad"))
		w.Advance(time.Minute)
		w.Quarantined(1, "bad")
		want := "outer,inner,inner good done,inner bad rejected,outer good done,outer bad rejected," +
			"outer,inner,inner bad rejected,outer bad rejected"
		proof.Same(t, strings.Join(said, ","), want)
	})
}

func TestMiddlewareThatIsOfNoUseIsRefused(t *testing.T) {
	none := processor.Options{Use: []processor.Middleware{nil}}
	discards := processor.Options{Discard: true, Use: make([]processor.Middleware, 1)}
	for _, o := range []processor.Options{none, discards} {
		_, err := processor.New(pump.Config{}, both{}, o)
		if err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// A middleware may give the handler a copy of a task with another body, as one that unpacks does, and
// may return before the handler it started.
func TestAHandlerGetsTheTaskOfItsMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		h := pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
			seen = append(seen, string(task.Body))
			return nil
		})
		w := pumptest.New(t, pump.Config{}, h, processor.Options{Use: []processor.Middleware{
			func(ctx context.Context, tasks []*pump.Task, next processor.Next) []error {
				unpacked := *tasks[0]
				unpacked.Body = []byte("unpacked")
				time.AfterFunc(time.Minute, func() { next(context.WithoutCancel(ctx), []*pump.Task{&unpacked}) })
				return next(ctx, []*pump.Task{&unpacked})
			},
		}})
		w.Send([]byte("packed"))
		w.Advance(time.Hour)
		w.Done(1)
		proof.Same(t, strings.Join(seen, " "), "unpacked unpacked", "the handler saw")
	})
}
