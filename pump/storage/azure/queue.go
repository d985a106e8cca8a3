package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/pump/storage"
)

// queue is a handle on one queue; making one costs two small allocations.
type queue struct {
	account *account
	name    string
	client  *azqueue.QueueClient // nil if the name cannot be a queue's
}

// xmlBody is the type of a message's document, as azqueue names it.
const xmlBody = "application/xml"

// validQueueName keeps a name from being read as another path. The service
// refuses further ones (two dashes in a row).
func validQueueName(s string) bool {
	return within(s, 3, 63, func(c byte) bool { return 'a' <= c && c <= 'z' || digit(c) || c == '-' })
}

var errQueueName = errors.New(
	"the name of a queue is 3 to 63 lower-case letters, digits and dashes",
)

func (q *queue) Name() string { return q.name }

// do makes one request of the queue.
func (q *queue) do(
	ctx context.Context, op string, x *exchange, call func(context.Context) error,
) error {
	if q.client == nil {
		return q.account.invalid(storage.Invalid, op, q.name, errQueueName)
	}
	return q.account.do(ctx, op, q.name, x, call)
}

func (q *queue) Create(ctx context.Context) error {
	x := &exchange{want: http.StatusCreated, limit: smallAnswer}
	err := q.do(ctx, "create", x, func(ctx context.Context) error {
		_, err := q.client.Create(ctx, nil)
		return err
	})
	// 204: it exists; 409 QueueAlreadyExists: and has metadata.
	if x.status == http.StatusNoContent || serviceCode(err) == "QueueAlreadyExists" {
		return nil
	}
	return err
}

func (q *queue) Drop(ctx context.Context) error {
	return q.do(ctx, "drop", &exchange{want: http.StatusNoContent, limit: smallAnswer},
		func(ctx context.Context) error {
			_, err := q.client.Delete(ctx, nil)
			return err
		})
}

func (q *queue) Put(
	ctx context.Context, text []byte, delay time.Duration,
) (storage.Receipt, error) {
	ctx, cancel := bounded(ctx) // with the wait, which is long while the host hangs
	defer cancel()
	if puts := q.account.puts; puts != nil {
		if puts.Acquire(ctx, 1) != nil {
			return storage.Receipt{}, storage.NotSent(ctx, "put", q.account.name, q.name)
		}
		defer puts.Release(1)
	}
	body, err := q.document("put", text)
	if err != nil {
		return storage.Receipt{}, err
	}
	hidden, err := q.seconds("put", delay, 0)
	if err != nil {
		return storage.Receipt{}, err
	}
	x := &exchange{
		body: body, contentType: xmlBody, want: http.StatusCreated, limit: smallAnswer, pool: true,
	}
	defer x.release()
	err = q.do(ctx, "put", x, func(ctx context.Context) error {
		// By default the service drops a message without a trace after 7 days.
		o := &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))}
		if hidden > 0 {
			o.VisibilityTimeout = &hidden
		}
		_, err := q.client.EnqueueMessage(ctx, "", o)
		return err
	})
	if err != nil {
		return storage.Receipt{}, err
	}
	ms, err := readMessages(x.answer, 1, hasID|hasReceipt)
	if err == nil && len(ms) == 0 {
		err = errors.New("no message in it")
	}
	if err != nil {
		return storage.Receipt{}, q.account.unreadable("put", q.name, x, err)
	}
	return ms[0].Receipt, nil
}

func (q *queue) Get(
	ctx context.Context, most int, visibility time.Duration,
) ([]storage.Message, error) {
	n, err := q.count("get", most)
	if err != nil {
		return nil, err
	}
	hidden, err := q.seconds("get", visibility, 1)
	if err != nil {
		return nil, err
	}
	x := &exchange{want: http.StatusOK, limit: messagesAnswer, pool: true}
	defer x.release()
	err = q.do(ctx, "get", x, func(ctx context.Context) error {
		o := &azqueue.DequeueMessagesOptions{NumberOfMessages: &n, VisibilityTimeout: &hidden}
		_, err := q.client.DequeueMessages(ctx, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	ms, err := readMessages(x.answer, most, hasID|hasReceipt|hasText)
	if err != nil {
		return nil, q.account.unreadable("get", q.name, x, err)
	}
	return ms, nil
}

func (q *queue) Peek(ctx context.Context, most int) ([]storage.Message, error) {
	n, err := q.count("peek", most)
	if err != nil {
		return nil, err
	}
	x := &exchange{want: http.StatusOK, limit: messagesAnswer, pool: true}
	defer x.release()
	err = q.do(ctx, "peek", x, func(ctx context.Context) error {
		_, err := q.client.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: &n})
		return err
	})
	if err != nil {
		return nil, err
	}
	ms, err := readMessages(x.answer, most, hasID|hasText)
	if err != nil {
		return nil, q.account.unreadable("peek", q.name, x, err)
	}
	for i := range ms {
		ms[i].PopReceipt = ""
	}
	return ms, nil
}

func (q *queue) Renew(
	ctx context.Context, r storage.Receipt, visibility time.Duration,
) (storage.Receipt, error) {
	// Without a body the service keeps the text. The SDK's method always sends one,
	// and an empty text erases the message (azsim/AZURE.md D2).
	x := &exchange{bare: true}
	return q.update(ctx, "renew", r, visibility, x)
}

func (q *queue) Replace(
	ctx context.Context, r storage.Receipt, text []byte, visibility time.Duration,
) (storage.Receipt, error) {
	body, err := q.document("replace", text)
	if err != nil {
		return storage.Receipt{}, err
	}
	x := &exchange{body: body, contentType: xmlBody}
	return q.update(ctx, "replace", r, visibility, x)
}

// update makes the request whose body x has.
func (q *queue) update(
	ctx context.Context, op string, r storage.Receipt, visibility time.Duration, x *exchange,
) (storage.Receipt, error) {
	hidden, err := q.seconds(op, visibility, 0)
	if err != nil {
		return storage.Receipt{}, err
	}
	if err := q.check(op, r); err != nil {
		return storage.Receipt{}, err
	}
	x.want, x.limit, x.pool = http.StatusNoContent, smallAnswer, true
	defer x.release()
	err = q.do(ctx, op, x, func(ctx context.Context) error {
		o := &azqueue.UpdateMessageOptions{VisibilityTimeout: &hidden}
		_, err := q.client.UpdateMessage(ctx, r.ID, r.PopReceipt, "", o)
		return err
	})
	if err != nil {
		return storage.Receipt{}, err
	}
	pop := x.header.Get("x-ms-popreceipt")
	if pop == "" {
		// The message was updated and no client holds its receipt.
		return storage.Receipt{}, q.account.unreadable(op, q.name, x, errors.New("no pop receipt in it"))
	}
	return storage.Receipt{
		ID: r.ID, PopReceipt: pop, NextVisible: httpTime([]byte(x.header.Get("x-ms-time-next-visible"))),
	}, nil
}

func (q *queue) Delete(ctx context.Context, r storage.Receipt) error {
	if err := q.check("delete", r); err != nil {
		return err
	}
	x := &exchange{want: http.StatusNoContent, limit: smallAnswer, pool: true}
	defer x.release()
	return q.do(ctx, "delete", x, func(ctx context.Context) error {
		_, err := q.client.DeleteMessage(ctx, r.ID, r.PopReceipt, nil)
		return err
	})
}

func (q *queue) Count(ctx context.Context) (int64, error) {
	x := &exchange{want: http.StatusOK, limit: smallAnswer}
	err := q.do(ctx, "count", x, func(ctx context.Context) error {
		_, err := q.client.GetProperties(ctx, nil)
		return err
	})
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(x.header.Get("x-ms-approximate-messages-count"), 10, 64)
	if err != nil || n < 0 {
		return 0, q.account.unreadable("count", q.name, x, errors.New("no number of messages in it"))
	}
	return n, nil
}

func (q *queue) Clear(ctx context.Context) error {
	return q.do(ctx, "clear", &exchange{want: http.StatusNoContent, limit: smallAnswer},
		func(ctx context.Context) error {
			_, err := q.client.ClearMessages(ctx, nil)
			return err
		})
}

// document checks text and wraps it.
func (q *queue) document(op string, text []byte) ([]byte, error) {
	if len(text) > storage.MaxText {
		return nil, q.account.invalid(storage.TooLarge, op, q.name,
			fmt.Errorf("%d bytes of text; a message holds %d", len(text), storage.MaxText))
	}
	d, err := document(text)
	if err != nil {
		return nil, q.account.invalid(storage.Invalid, op, q.name, err)
	}
	return d, nil
}

// seconds turns d into the service's unit, rounded up: a lease shorter than its holder asked for
// ends while the holder still trusts it.
func (q *queue) seconds(op string, d time.Duration, least int32) (int32, error) {
	if d < 0 || d > storage.MaxVisibility || least > 0 && d == 0 {
		return 0, q.account.invalid(storage.Invalid, op, q.name,
			fmt.Errorf("a visibility of %v; it must be %d s to %v", d, least, storage.MaxVisibility))
	}
	return int32((d + time.Second - 1) / time.Second), nil
}

func (q *queue) count(op string, n int) (int32, error) {
	if n < 1 || n > storage.MaxGet {
		return 0, q.account.invalid(storage.Invalid, op, q.name,
			fmt.Errorf("%d messages asked for; it must be 1 to %d", n, storage.MaxGet))
	}
	return int32(n), nil
}

// check refuses a receipt that would not address a message: an id becomes a
// part of the path as it is.
func (q *queue) check(op string, r storage.Receipt) error {
	if !within(r.ID, 1, 128, func(c byte) bool {
		return letter(c) || digit(c) || c == '-' || c == '_'
	}) {
		return q.account.invalid(storage.Invalid, op, q.name,
			errors.New("the receipt has no valid message id"))
	}
	if r.PopReceipt == "" {
		return q.account.invalid(storage.Invalid, op, q.name,
			errors.New("the receipt has no pop receipt; a peek gives none"))
	}
	return nil
}

// serviceCode is the service's own code of a failure, empty if err has none.
func serviceCode(err error) string {
	if e, ok := errors.AsType[*storage.Error](err); ok {
		return e.Service
	}
	return ""
}
