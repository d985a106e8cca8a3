package storagetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Harness is a server and a driver for it.
type Harness struct {
	// Open opens an account of the server. Every request must go through
	// via, which wraps the driver's transport. It is called once for each
	// case, inside the case's bubble if Virtual. Cases do not clean up after
	// themselves except where Clean says so.
	Open func(t testing.TB, via func(Doer) Doer) storage.Account

	// Virtual runs each case in a bubble of testing/synctest and adds the
	// cases that would take too long in real time. Open must then open an
	// account of a server that lives in the bubble.
	Virtual bool

	// Clean drops the queues and tables that a case made when it ends, and deletes its blobs. Set it
	// for accounts that outlive the test. Containers stay: the contract has no way to drop one.
	Clean bool

	// Prefix begins the names of queues, tables and the container: a lower-case letter, then those and
	// digits. Without one they begin with a q and a random part.
	Prefix string

	// Ended is told how each case ended, with an empty text if it passed. It may be nil.
	Ended func(name, failure string)

	// Differences lists the cases that the server is known to answer otherwise.
	Differences []Difference
}

// Difference is a case that a server answers otherwise than Azure.
type Difference struct {
	Case  string // the sentence that names the case
	Ref   string // where the difference is written down
	Shows string // a part of the failure with which the case ends

	// Sometimes marks a difference that is a matter of chance and may not show.
	Sometimes bool
}

// testCase is one sentence and its test.
type testCase struct {
	name    string
	run     func(*C)
	virtual bool // takes minutes or more, or asserts exact times
	waits   bool // spends seconds waiting; where time is real these run side by side
}

func allCases() []testCase {
	var all []testCase
	for _, part := range [][]testCase{
		queueCases, messageCases, visibilityCases, tableCases, propertyCases, transactionCases,
		queryCases, raceCases, ambiguityCases, blobCases,
	} {
		all = append(all, part...)
	}
	return all
}

// Run runs every case against the server of h.
func Run(t *testing.T, h Harness) {
	cases := allCases()
	known := map[string]*Difference{}
	for i := range h.Differences {
		known[h.Differences[i].Case] = &h.Differences[i]
	}
	h.Prefix = cmp.Or(h.Prefix, "q"+strings.ToLower(rand.Text()[:8]))
	t.Logf("names of queues and tables begin with %s", h.Prefix)

	// Cases that wait are started first and looked at when their turn comes, unless -run chooses
	// others. They must not report anything after the end of t.
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	started := map[string]chan *C{}
	for i, tc := range cases {
		if h.Virtual || tc.virtual || !tc.waits {
			continue
		}
		done := make(chan *C, 1)
		started[tc.name] = done
		c := newC(h, t, i)
		all.Go(func() {
			c.do(tc.run)
			done <- c
		})
	}
	for i, tc := range cases {
		if tc.virtual && !h.Virtual {
			continue
		}
		difference := known[tc.name]
		delete(known, tc.name)
		t.Run(tc.name, func(t *testing.T) {
			switch {
			case h.Virtual:
				synctest.Test(t, func(t *testing.T) {
					c := newC(h, t, i)
					c.do(tc.run)
					c.report(t, tc.name, difference)
				})
			case started[tc.name] != nil:
				(<-started[tc.name]).report(t, tc.name, difference)
			default:
				c := newC(h, t, i)
				c.do(tc.run)
				c.report(t, tc.name, difference)
			}
		})
	}
	for name := range known {
		t.Errorf("a difference is listed for %q, which is not a case of this run", name)
	}
}

// C is a case that runs: its own account and wire, and a record of what was wrong.
type C struct {
	Account storage.Account
	Wire    *Wire

	ctx    context.Context
	prefix string
	box    string     // the one container of all cases: no call of the contract drops one
	mu     sync.Mutex // guards what follows
	named  int
	failed []string
	clean  []func(context.Context) error
	doing  bool
	ended  func(name, failure string)
}

// slowest is how long a few requests may take on a busy machine, where a time
// that the service tells is compared with another.
const slowest = 3 * time.Minute

// caseTimeout is how long a case may take. It is the deadline of the calls: without it each has 30
// s, in which a busy machine may not answer.
const caseTimeout = 10 * time.Minute

func newC(h Harness, t testing.TB, i int) *C {
	ctx := t.Context()
	if !h.Virtual { // where a call without a deadline is a case of its own
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, caseTimeout)
		t.Cleanup(cancel)
	}
	c := &C{Wire: &Wire{}, ctx: ctx, prefix: fmt.Sprint(h.Prefix, i), box: h.Prefix + "blobs"}
	c.doing, c.ended = h.Clean, h.Ended
	c.Account = h.Open(t, c.Wire.Through)
	return c
}

// stop ends a case early.
type stop struct{}

func (c *C) do(run func(*C)) {
	defer func() {
		for _, f := range c.clean {
			if err := f(context.WithoutCancel(c.ctx)); err != nil && !storage.Is(err, storage.Missing) {
				c.Errorf("cleaning up: %v", err)
			}
		}
	}()
	defer func() {
		switch r := recover(); r.(type) {
		case nil, stop:
		default:
			c.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	run(c)
}

// report tells t how the case ended.
func (c *C) report(t *testing.T, name string, known *Difference) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	failure, note := verdict(strings.Join(c.failed, "\n"), known)
	if note != "" {
		t.Log(note)
	}
	if c.ended != nil {
		c.ended(name, failure)
	}
	if failure != "" {
		t.Error(failure)
	}
}

// verdict judges what a case showed against what it is known to show.
func verdict(shown string, known *Difference) (failure, note string) {
	switch {
	case known == nil:
		return shown, ""
	case shown == "" && known.Sometimes:
		return "", fmt.Sprintf("did not differ from Azure this time (%s)", known.Ref)
	case shown == "":
		return fmt.Sprintf("listed as different (%s) and no longer so: take it off the list", known.Ref),
			""
	case !strings.Contains(shown, known.Shows):
		return fmt.Sprintf("listed as different (%s) with %q, but shows\n%s", known.Ref, known.Shows,
			shown), ""
	}
	return "", fmt.Sprintf("differs from Azure as known (%s): %s", known.Ref, shown)
}

// Errorf records a failure; the case goes on. It may be called from any goroutine.
func (c *C) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, fmt.Sprintf(format, args...))
}

// Fatalf records a failure and ends the case. Only the case's own goroutine may call it.
func (c *C) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	panic(stop{})
}

// must ends the case if err is an error.
func (c *C) must(err error) {
	if err != nil {
		c.Fatalf("%v", err)
	}
}

// want checks the code of a failure and the error's text.
func (c *C) want(code storage.Code, err error, what string) {
	if err == nil {
		c.Errorf("%s: done, want %s", what, code)
		return
	}
	e, ok := errors.AsType[*storage.Error](err)
	switch {
	case !ok:
		c.Errorf("%s: %T is no *storage.Error: %v", what, err, err)
	case e.Code != code:
		c.Errorf("%s: %v, want %s", what, err, code)
	case e.Op == "" || e.Account != c.Account.Name():
		c.Errorf("%s: the error does not name request and account: %+v", what, e)
	}
}

// name gives a name that no other test uses, good for queues and tables.
func (c *C) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named++
	return fmt.Sprintf("%sx%d", c.prefix, c.named)
}

// queue makes a queue.
func (c *C) queue() storage.Queue {
	q := c.Account.Queue(c.name())
	c.must(q.Create(c.ctx))
	c.later(q.Drop)
	return q
}

// taken makes a queue with a message, and gets that for an hour.
func (c *C) taken(text string) (storage.Queue, storage.Message) {
	q := c.queue()
	c.put(q, text)
	return q, c.get(q, time.Hour)
}

// table makes a table.
func (c *C) table() storage.Table {
	t := c.Account.Table(c.name())
	c.must(t.Create(c.ctx))
	c.later(t.Drop)
	return t
}

// container makes a container, or gives that of an earlier case: each case names its own blobs.
func (c *C) container() storage.Container {
	box := c.Account.Container(c.box)
	c.must(box.Create(c.ctx))
	return box
}

// blobs names blobs as the case's own; they are deleted at the end of the case if that is wanted.
func (c *C) blobs(box storage.Container) (prefix string) {
	prefix = c.name() + "/"
	c.later(func(ctx context.Context) error {
		for b, err := range box.List(ctx, prefix, "") {
			if err == nil {
				err = box.Delete(ctx, b.Name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return prefix
}

// later cleans up at the end of the case, if the harness wants that.
func (c *C) later(f func(context.Context) error) {
	if c.doing {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.clean = append(c.clean, f)
	}
}

// await polls until ok, for at most a minute. It never asserts that something
// takes no longer than it should: the machine may be busy.
func (c *C) await(what string, ok func() bool) {
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(150 * time.Millisecond) {
		if time.Now().After(until) {
			c.Fatalf("waited a minute for %s", what)
		}
	}
}

// put puts one visible message.
func (c *C) put(q storage.Queue, text string) storage.Receipt {
	r, err := q.Put(c.ctx, []byte(text), 0)
	c.must(err)
	return r
}

// get gets exactly one message.
func (c *C) get(q storage.Queue, visibility time.Duration) storage.Message {
	ms, err := q.Get(c.ctx, storage.MaxGet, visibility)
	c.must(err)
	if len(ms) != 1 {
		c.Fatalf("got %d messages, want 1", len(ms))
	}
	return ms[0]
}

// lapsed puts a message, gets it for a second, and waits until that is over.
func (c *C) lapsed(q storage.Queue) storage.Message {
	c.put(q, "x")
	m := c.get(q, time.Second)
	c.await("the visibility to end", func() bool { return c.visible(q) == 1 })
	return m
}

// errOf is the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

// write makes a write that must succeed.
func (c *C) write(t storage.Table, w storage.Write) storage.ETag {
	etag, err := t.Write(c.ctx, w)
	c.must(err)
	return etag
}

// rows are those of a query, which must succeed.
func (c *C) rows(t storage.Table, q storage.Query) []storage.Entity {
	all, err := collect(t.Query(c.ctx, q))
	c.must(err)
	return all
}

// sending counts the requests from now on, until sent says how many there must have been.
func (c *C) sending() (sent func(want int)) {
	before := c.Wire.Requests()
	return func(want int) {
		if n := c.Wire.Requests() - before; n != want {
			c.Errorf("%d requests were made, want %d", n, want)
		}
	}
}

// expect says what is wrong if another number of messages is visible.
func (c *C) expect(q storage.Queue, want int, wrong string) {
	if n := c.visible(q); n != want {
		c.Errorf(wrong, n)
	}
}

// visible counts the visible messages, up to 32.
func (c *C) visible(q storage.Queue) int {
	ms, err := q.Peek(c.ctx, storage.MaxGet)
	c.must(err)
	return len(ms)
}
