package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// ResultsOptions say which results [Results] gives.
type ResultsOptions struct {
	// Since leaves out results that were kept before, by the clocks of the processors.
	Since time.Time
	// Distinct leaves out repeats also in delivery mode at-least-once, where a task that was done
	// twice may have two results. Mode once always leaves them out.
	Distinct bool
	// From is the Place that Results gave when it was interrupted, to go on from there with a run
	// that is over: later results are not among those that come then.
	From string
	// Progress is called after each object.
	Progress func(ResultsRead)
}

// ResultsRead is what [Results] has read.
type ResultsRead struct {
	Run     pump.RunID `json:"run"`
	State   string     `json:"state"`
	Results uint64     `json:"results"` // lines that it gave
	// Repeats are results of tasks that had one already; in mode at-least-once without Distinct they
	// are among Results.
	Repeats uint64 `json:"repeats"`
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"` // of lines
	// Over: no more results can come, but of redriven tasks. In mode at-least-once that is not known.
	Over bool `json:"over"`
	// Place is where to go on if not all objects were read.
	Place string `json:"place,omitempty"`
}

// String says it for people.
func (r ResultsRead) String() string {
	text := fmt.Sprintf("%d results, %d repeats, in %d objects, %.1f MiB", r.Results, r.Repeats,
		r.Objects, float64(r.Bytes)/(1<<20))
	if r.Place != "" {
		text += "; to go on: --from " + r.Place
	} else if !r.Over {
		text += "; the run is " + r.State + ", and there may be more later"
	}
	return text
}

const (
	// readAhead is how many objects are fetched at once, each of some MiB.
	readAhead = 4
	// sinceSlack is how far the clocks of processors differ at most: a chain is followed so far back.
	sinceSlack = 10 * time.Minute
	// fetchTries is how often an object is asked for that an account does not answer about.
	fetchTries = 6
	// objectMost is more than an object has when it is compressed.
	objectMost = 24 << 20
	// damageTold is how many damaged objects are named.
	damageTold = 20
)

// Results gives the kept results of a run (processor.Options.Results), one JSON line a task with
// its line end, in no order; a line is valid until the next one. Of a run that is not over it
// gives what is kept so far. It reads at most a few objects at once, so its memory does not grow
// with their number. An object that is missing or damaged is part of the error, and the others are
// still given: what was before it in its segments is only known by it.
func Results(
	ctx context.Context, cfg pump.Config, id pump.RunID, o ResultsOptions,
	line func(line []byte) error,
) (ResultsRead, error) {
	opened, err := setup.Open(ctx, cfg)
	if err != nil {
		return ResultsRead{}, err
	}
	run, err := opened.Runs().Get(ctx, id)
	if err != nil {
		return ResultsRead{}, err
	}
	once := opened.Workload.Delivery == string(pump.Once)
	r := &resultsReader{
		Session: opened, o: o, emit: line, linesOf: results.LinesOf(id),
		distinct: once || o.Distinct, links: map[results.Ref]*links{},
		seen: map[uint32]*roaring64.Bitmap{},
		read: ResultsRead{
			Run: id, State: string(run.State), Over: once && (run.State == workload.RunClosed || run.Over),
		},
		fetching: map[results.Ref]chan fetched{},
	}
	if err := r.from.UnmarshalText([]byte(o.From)); err != nil {
		return r.read, pump.Invalid("from", err.Error(), "give the place as it was printed")
	}
	damage := r.roots(ctx, id, once)
	err = r.walk(ctx)
	if r.damaged > damageTold {
		r.damage = append(r.damage, fmt.Errorf("%d objects in all are missing or damaged", r.damaged))
	}
	return r.read, errors.Join(append(r.damage, damage, err)...)
}

// links are the chains of the run that lead to an object.
type links struct {
	noted    bool
	segments map[uint32]bool
}

type fetched struct {
	body []byte
	err  error
}

type resultsReader struct {
	*setup.Session
	o        ResultsOptions
	emit     func([]byte) error
	linesOf  []byte
	distinct bool
	read     ResultsRead
	from     results.Ref
	met      bool          // an object is at from
	todo     []results.Ref // the greatest number first
	links    map[results.Ref]*links
	fetching map[results.Ref]chan fetched
	seen     map[uint32]*roaring64.Bitmap // n by segment
	damage   []error
	damaged  int
}

// roots finds the last object of each chain. The ledger is read before the index: as long as there
// is no index, nothing of the run has left the ledger.
func (r *resultsReader) roots(ctx context.Context, id pump.RunID, once bool) error {
	var last map[pump.RunID]map[uint32]string
	var damage error
	if once {
		last, damage = ledger.ReadResults(ctx, r.Queues.Control, r.Workload.Name,
			r.Workload.Map.Segments, id)
	}
	index, noted, err := results.Roots(ctx, r.Queues.Control, r.Workload.Name, id)
	if index != nil {
		damage = nil
	} else {
		index = map[uint32]results.Ref{}
		for segment, packed := range last[id] {
			ref, err := results.Unpack(packed)
			index[segment], damage = ref, errors.Join(damage, err)
		}
	}
	for segment, ref := range index {
		r.follow(ref, results.Link(segment))
	}
	for _, ref := range noted {
		r.follow(ref, results.Noted)
	}
	return errors.Join(damage, err)
}

// follow notes that a chain leads to an object.
func (r *resultsReader) follow(ref results.Ref, link string) {
	if ref == (results.Ref{}) {
		return
	}
	l := r.links[ref]
	if l == nil {
		l = &links{segments: map[uint32]bool{}}
		r.links[ref] = l
		at, _ := slices.BinarySearchFunc(r.todo, ref, results.Ref.Compare)
		r.todo = slices.Insert(r.todo, at, ref)
	}
	segment, err := strconv.ParseUint(link, 10, 32)
	if err == nil {
		l.segments[uint32(segment)] = true
	}
	l.noted = l.noted || link == results.Noted
}

// walk takes one object after the other, the greatest number first: no chain leads there any more.
func (r *resultsReader) walk(ctx context.Context) error {
	for len(r.todo) > 0 && ctx.Err() == nil {
		r.fetchAhead(ctx)
		ref := r.todo[0]
		got := <-r.fetching[ref]
		delete(r.fetching, ref)
		r.todo, r.met = r.todo[1:], r.met || ref == r.from
		err := got.err
		if err == nil {
			err = r.take(ctx, ref, got.body)
		}
		delete(r.links, ref)
		if e, stopped := errors.AsType[*stopped](err); stopped {
			return e.error
		}
		if err != nil {
			if r.damaged++; r.damaged <= damageTold {
				r.damage = append(r.damage, fmt.Errorf("results %s are missing or damaged: %w", ref, err))
			}
		}
		r.read.Objects++
		if r.o.Progress != nil {
			r.o.Progress(r.read)
		}
	}
	if len(r.todo) > 0 {
		place, _ := r.todo[0].MarshalText()
		r.read.Place = string(place)
	}
	if !r.met && r.read.Place == "" && r.o.From != "" {
		return pump.Invalid("from", "no object of the run is at this place",
			"give the place as it was printed for this run")
	}
	return context.Cause(ctx)
}

// stopped is an error of the receiver of lines.
type stopped struct{ error }

func (r *resultsReader) take(ctx context.Context, ref results.Ref, body []byte) error {
	l, wanted, run := r.links[ref], true, r.read.Run
	return results.Read(body, func(h *results.Header) error {
		chains := h.Chains[run]
		_, is := chains[results.Noted]
		other := l.noted && !is
		for segment := range l.segments {
			_, is := chains[results.Link(segment)]
			other = other || !is
		}
		if other {
			return errors.New("another object has its name")
		}
		wanted = !h.At.Before(r.o.Since) && (r.o.From == "" || ref.Compare(r.from) >= 0)
		for link, before := range chains {
			segment, err := strconv.ParseUint(link, 10, 32)
			switch {
			case !(link == results.Noted && l.noted || err == nil && l.segments[uint32(segment)]):
			case before.Number >= ref.Number:
				return errors.New("what it says to be before it is not")
			case !h.At.Before(r.o.Since.Add(-sinceSlack)):
				r.follow(before, link)
			}
		}
		r.fetchAhead(ctx)
		return nil
	}, func(line []byte, noted bool) error {
		segment, n, ok := results.Identify(line, r.linesOf)
		if !ok || noted && !l.noted || !noted && !l.segments[segment] {
			return nil
		}
		first := r.first(segment, n)
		if !wanted {
			return nil
		}
		if !first {
			if r.read.Repeats++; r.distinct {
				return nil
			}
		}
		r.read.Results++
		r.read.Bytes += uint64(len(line))
		if err := r.emit(line); err != nil {
			return &stopped{err}
		}
		return nil
	})
}

// first reports whether a task had no result before.
func (r *resultsReader) first(segment uint32, n uint64) bool {
	of := r.seen[segment]
	if of == nil {
		of = roaring64.New()
		r.seen[segment] = of
	}
	return of.CheckedAdd(n)
}

// fetchAhead has the next objects fetched.
func (r *resultsReader) fetchAhead(ctx context.Context) {
	for _, ref := range r.todo[:min(len(r.todo), readAhead)] {
		if r.fetching[ref] == nil && (len(r.fetching) < readAhead || ref == r.todo[0]) {
			got := make(chan fetched, 1)
			r.fetching[ref] = got
			go func() {
				body, err := r.fetch(ctx, ref)
				got <- fetched{body, err}
			}()
		}
	}
}

func (r *resultsReader) fetch(ctx context.Context, ref results.Ref) (body []byte, err error) {
	a := r.Queues.Account(ref.Account)
	if a == nil {
		return nil, fmt.Errorf("there are no credentials here for account %q", ref.Account)
	}
	for try := uint64(0); ; try++ {
		b, err := r.Queues.GetBlob(ctx, a, results.Container(r.Workload.Name), ref.Blob(), objectMost)
		pause := waits.Jitter(r.Cfg.Instance).Around(
			waits.Doubled(200*time.Millisecond, 5*time.Second, try), "results", ref.Blob(), try)
		if err == nil || !storage.Ambiguous(err) || try >= fetchTries || !waits.Wait(ctx, pause) {
			return b.Body, err
		}
	}
}
