package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/queuepump/queuepump/pump/storage"
)

// callTimeout bounds a call whose context has no deadline. The services give a request up after 30
// s themselves (Query timeout and pagination), so a server that has not answered by then never
// will, and azcore alone would wait for ever.
const callTimeout = 30 * time.Second

// exchange is one request and its answer as they travel past the SDK. It is
// used by one call, and by its goroutine alone.
type exchange struct {
	// What the carrier puts into the SDK's request.
	body        []byte // instead of the SDK's body, if not nil
	contentType string
	bare        bool   // without the SDK's body
	method      string // instead of the SDK's, if not empty
	quiet       bool   // ask for an answer without the row that was sent
	raw         *raw   // instead of the SDK's address and headers, if not nil

	row   bool  // the request needs its row to be there
	want  int   // the status of success
	limit int64 // bytes of answer to accept
	pool  bool  // read the answer into a pooled buffer; release returns it

	// What the wire saw.
	sent   bool // the request was handed to the transport
	status int  // 0: no whole answer
	header http.Header
	answer []byte
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// errAnswered ends the SDK's part of a call once the answer is in the exchange.
var errAnswered = errors.New("the answer has been read")

// carrier is the policy that stands between the SDK's client and its retry and
// signing policies.
type carrier struct{}

func (carrier) Do(req *policy.Request) (*http.Response, error) {
	x := exchangeOf(req.Raw().Context())
	if x == nil {
		return req.Next()
	}
	if x.body != nil {
		if err := req.SetBody(streaming.NopCloser(bytes.NewReader(x.body)), x.contentType); err != nil {
			return nil, err
		}
	}
	if x.bare {
		if err := req.SetBody(nil, ""); err != nil {
			return nil, err
		}
		req.Raw().GetBody = nil
	}
	if x.method != "" {
		// aztables takes any address with "localhost" and "8902" in it, so also
		// port 18902, for Cosmos DB and turns PATCH into a POST.
		req.Raw().Method = x.method
		req.Raw().Header.Del("X-HTTP-Method")
	}
	if x.quiet {
		req.Raw().Header.Set("Prefer", "return-no-content")
	}
	if x.raw != nil {
		x.raw.write(req.Raw())
	}
	resp, err := req.Next()
	if x.status != 0 {
		return nil, errAnswered
	}
	return resp, err
}

// do makes one request: call must make exactly one through the SDK with the
// context it is given. On nil the answer with the wanted status is in x.
func (a *account) do(
	ctx context.Context, op, object string, x *exchange, call func(context.Context) error,
) error {
	if ctx.Err() != nil {
		return storage.NotSent(ctx, op, a.name, object)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	growStack()
	err := call(context.WithValue(ctx, exchangeKey{}, x))
	switch {
	case x.status == x.want:
		return nil
	case x.status != 0:
		return a.refused(op, object, x)
	case x.sent:
		return &storage.Error{
			Code: storage.MaybeDone, Op: op, Account: a.name, Object: object, Index: -1,
			Err: a.hide.error(err),
		}
	case ctx.Err() != nil:
		e := storage.NotSent(ctx, op, a.name, object)
		if a.bearer {
			e.Err = fmt.Errorf("it waited for a token: %w", e.Err)
		}
		return e
	case a.bearer:
		return a.invalid(storage.Auth, op, object, a.hide.error(err))
	}
	return a.invalid(storage.Invalid, op, object, a.hide.error(err))
}

// bounded gives a context that has a deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}

// requestStack is what the frames of a request take: 5.2 KB from here to the transport, and some
// 2 KB of net/http.
const requestStack = 8 << 10

// growStack makes the goroutine's stack as large as a request needs, at once. Most requests are
// made by goroutines of their own, a put or a delete each. Where the SDK calls one policy after
// the other, their stacks were copied to twice their size three times, frame by frame. Here
// there are few frames to copy.
//
//go:noinline
func growStack() byte {
	var room [requestStack]byte
	return touch(&room)
}

// touch keeps the room on the stack.
//
//go:noinline
func touch(room *[requestStack]byte) byte {
	room[0] = 1
	return room[len(room)-1]
}

// unreadable is the error for an answer that says success and cannot be understood; err says why,
// if that is known.
func (a *account) unreadable(op, object string, x *exchange, err error) error {
	if err == nil {
		err = errUnreadable
	} else {
		err = fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return &storage.Error{
		Code: storage.MaybeDone, Op: op, Account: a.name, Object: object, Status: x.status, Index: -1,
		Err: a.hide.error(err),
	}
}

var errUnreadable = errors.New("the answer cannot be understood")

// invalid is the error for wrong arguments of a call, or of one without a token; nothing was sent.
func (a *account) invalid(code storage.Code, op, object string, err error) error {
	return &storage.Error{Code: code, Op: op, Account: a.name, Object: object, Index: -1, Err: err}
}
