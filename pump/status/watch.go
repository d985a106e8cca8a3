package status

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// WatchRate bounds the requests a second of a [Watcher]: as many as the process makes that samples
// the queues for the metrics. At 0.4 cents for 10,000 they cost 86 cents a day at most.
const WatchRate = rowRate + queueRate

const (
	// rowRate and queueRate are for rows and for queues: with one rate for both the rows of a large
	// workload would wait behind all its queues.
	rowRate   = 10
	queueRate = 15
	// roundEvery is how often all queues of an account are looked at, at most.
	roundEvery = 2 * time.Second
	// atATime is how many requests are paid for at a time.
	atATime = 6
	// darkEvery is how often an account that does not answer is asked.
	darkEvery = 5 * time.Second
)

// Watcher reads a workload again and again, at a bounded rate: it shows a large workload from its
// rows at once, and its queues as they are read. Its methods may be called from many goroutines.
type Watcher struct {
	cfg     setup.Config
	options Options
	queues  *queues.Set
	rowPace *rate.Limiter // of requests for rows, and of requests by others ([Watcher.Pay])
	pace    *rate.Limiter // of requests to queues

	busy sync.Mutex // held while rows are read

	mu    sync.Mutex              // guards what follows
	read  time.Time               // when the rows were read, by the local clock
	rows  *statusReader           // the one that read the rows last; nil: they were never read
	said  []string                // its problems, without those of accounts
	looks map[string]*accountLook // by account
	uses  []accounts.Use          // of the rows
	lists map[string][]string     // queues by account
}

// accountLook is what is known of the queues of an account.
type accountLook struct {
	queues map[string]Queue // the queues that were read
	poison *int64
	dark   string
	where  string // the queue that said so
}

// NewWatcher makes a watcher; it makes no request.
func NewWatcher(cfg pump.Config, o Options) (*Watcher, error) {
	of, err := setup.Reach(cfg)
	if err != nil {
		return nil, err
	}
	return &Watcher{
		cfg: of.Cfg, options: o.withDefaults(), queues: of.Queues,
		rowPace: rate.NewLimiter(rowRate, rowRate), pace: rate.NewLimiter(queueRate, queueRate),
		looks: map[string]*accountLook{},
	}, nil
}

// Rows reads all rows, and gives the status with what is known of the queues by now. A part that it
// cannot read stays as it was; [Status.NotRead] says as of when. The error is that of [Read]; with
// it comes the last status, or nil. Rows pays for its requests once it has made them, so the next
// call waits.
func (w *Watcher) Rows(ctx context.Context) (*Status, error) {
	w.busy.Lock()
	defer w.busy.Unlock()
	if err := w.Pay(ctx); err != nil { // what was owed
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, w.options.Timeout)
	defer cancel()
	r := newReader(&w.cfg, w.options, w.queues)
	err := r.gather(limited, func(context.Context) {})
	w.owe(r.requests.Load())
	if err != nil {
		r.problem("%s", nothingKnown(err))
	}
	w.mu.Lock()
	if err == nil || w.rows == nil || w.rows.view == nil {
		r.complete(w.rows)
		w.rows, w.read, w.said = r, time.Now(), slices.Clone(r.problems)
		w.uses, w.lists = r.uses()
	}
	w.mu.Unlock()
	return w.Now(), err
}

// owe takes requests that were made already from the rate: waiting before the next ones pays for
// them.
func (w *Watcher) owe(n int64) {
	for ; n > 0; n -= rowRate {
		w.rowPace.ReserveN(time.Now(), int(min(n, rowRate)))
	}
}

// Pay waits until one more request may be made: for requests that a caller makes itself for the
// same viewers.
func (w *Watcher) Pay(ctx context.Context) error { return w.rowPace.Wait(ctx) }

// Read is how many rows the last [Watcher.Rows] has read: its cost is roughly in proportion.
func (w *Watcher) Read() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rows == nil {
		return 0
	}
	return w.rows.rows.Load()
}

// Now gives what the rows said when they were read last, and what is known of the queues by now;
// nil if the rows were never read. Queues that were not looked at yet have no entry in ByQueue.
func (w *Watcher) Now() *Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.rows
	if r == nil {
		return nil
	}
	r.problems = slices.Clone(w.said)
	r.accounts = make([]Account, len(w.uses))
	for i, use := range w.uses {
		a := &r.accounts[i]
		a.Use, a.Limit, a.ByQueue = use, w.cfg.Budget.Account, []Queue{}
		if l := w.looks[use.Name]; l != nil {
			w.show(r, a, l)
		}
	}
	s := r.status(w.read)
	s.Requests = r.requests.Load()
	return s
}

func (w *Watcher) show(r *statusReader, a *Account, l *accountLook) {
	a.Dark = l.dark
	if l.poison != nil {
		a.Poison = new(*l.poison)
	}
	for _, name := range w.lists[a.Name] {
		if q, ok := l.queues[name]; ok {
			a.ByQueue = append(a.ByQueue, q)
		}
	}
	if l.dark != "" {
		r.problem("account %s, queue %s: %s", a.Name, l.where, l.dark)
	}
}

// Look looks at the queues of all accounts in turn, until ctx ends. An account that does not answer
// delays no other.
func (w *Watcher) Look(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	looked := map[string]bool{}
	for ctx.Err() == nil {
		w.mu.Lock()
		for _, use := range w.uses {
			if name := use.Name; use.Configured && use.State != accounts.Unused && !looked[name] {
				looked[name] = true
				all.Go(func() { w.lookAt(ctx, name) })
			}
		}
		w.mu.Unlock()
		waits.Wait(ctx, roundEvery/4) // for the rows, and for accounts that are added
	}
}

// lookAt looks at the queues of an account, again and again.
func (w *Watcher) lookAt(ctx context.Context, name string) {
	for ctx.Err() == nil {
		next := time.Now().Add(roundEvery)
		w.mu.Lock()
		list := w.lists[name]
		w.mu.Unlock()
		if w.round(ctx, name, list) != nil {
			next = time.Now().Add(darkEvery)
		}
		waits.Wait(ctx, time.Until(next))
	}
}

// round looks at each queue of an account once, and stops at the first whose answer shows that the
// others would not answer either.
func (w *Watcher) round(ctx context.Context, name string, list []string) error {
	store, poison := w.queues.Account(name).Store, workload.PoisonQueue(w.cfg.Workload)
	patience := w.options.Timeout / 3
	var bad error
	paid := 0 // some at a time: waking up for each would cost more than the requests
	pay := func(ctx context.Context) error {
		if paid == 0 {
			if err := w.pace.WaitN(ctx, atATime); err != nil {
				return err
			}
			paid = atATime
		}
		paid--
		return nil
	}
	note := func(queue string, err error, change func(l *accountLook)) {
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		l := w.looks[name]
		if l == nil {
			l = &accountLook{queues: map[string]Queue{}}
			w.looks[name] = l
		}
		if err != nil && bad == nil {
			bad = err
			l.dark, l.where = why(err), queue
		}
		change(l)
	}
	for _, queue := range list {
		q := Queue{Queue: queue}
		err := readQueue(ctx, store.Queue(queue), &q, patience, pay)
		if err != nil {
			q = Queue{Queue: queue, Dark: why(err)}
		}
		note(queue, err, func(l *accountLook) { l.queues[queue] = q })
		if err != nil && (failure.Whole(err) || ctx.Err() != nil) {
			note(queue, err, func(l *accountLook) {
				for _, other := range list {
					if other != queue {
						l.queues[other] = Queue{Queue: other, Dark: queues.ErrNotAsked.Error()}
					}
				}
				l.poison = nil
			})
			return err
		}
	}
	var n int64
	err := pay(ctx)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, patience)
		n, err = store.Queue(poison).Count(limited)
		cancel()
	}
	if queues.NotThere(err) {
		n, err = 0, nil // nothing was ever quarantined
	}
	note(poison, err, func(l *accountLook) {
		if l.poison = nil; err == nil {
			l.poison = &n
		}
		if bad == nil {
			l.dark, l.where = "", ""
		}
	})
	return bad
}
