package worlds

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/storage"
)

// Worlds in which results are kept in blobs. In the end each task that was done has its result, in
// mode once exactly once. When the rows of runs are gone, so are their objects and rows that lead there.

const (
	simRetention = time.Hour
	// simSweeper is the processor that is there while runs grow old, and simSweeps its beat.
	simSweeper = "p98"
	simSweeps  = time.Minute
	// simSwept is within which time of the end of a world nothing is left of a run: it is retired,
	// and the objects are looked for each hour.
	simSwept = simRetention + 2*time.Hour + 30*time.Minute
)

// keepsResults are those worlds: processes die before and after puts of objects, and blobs are in trouble
// by themselves. In a third of them operators are at work, and in another third rows of runs come
// back.
func (g *simSeeded) keepsResults() {
	p := g.plan
	p.results, p.reducer, p.accounts, p.tasks = true, false, 2+g.roll(2), min(p.tasks, 600)
	if g.roll(4) == 0 {
		p.delivery = pump.AtLeastOnce
	}
	switch g.roll(3) {
	case 0:
		g.operating = true
	case 1:
		g.lostRuns()
	}
	for range 1 + g.roll(4) {
		name, at := []string{"p1", "p2"}[g.roll(2)], g.seconds(4, 50)
		point := []string{"object", "object", "commit", "note", "index", "delete"}[g.roll(6)]
		nth := 1 + g.roll(6)
		if point == "index" || point == "note" {
			nth = 1 // there are few
		}
		g.step(simStep{at: at, verb: "crash", who: name, after: g.roll(2) == 0, point: point, nth: nth})
		g.step(simStep{at: at + g.seconds(5, 40), verb: "restart", who: name})
	}
	g.blobFaults()
}

// blobFaults has accounts refuse, delay or lose requests to blobs now and then.
func (g *simSeeded) blobFaults() {
	for range g.roll(4) {
		r := azsim.Rule{Fault: simFaultKinds[g.roll(len(simFaultKinds))], Service: "blob", Probability: []float64{0, 0.3, 0.7}[g.roll(3)]}
		switch r.Fault {
		case azsim.DelayBefore, azsim.DelayAfter:
			r.Delay = g.seconds(1, 14)
		case azsim.CutBody: // answers to puts have none
			r.Fault, r.Status, r.Code = azsim.Answer, 403, "AuthorizationFailure"
		}
		if g.roll(3) > 0 {
			r.Account = g.account()
		}
		g.step(simStep{at: g.seconds(2, 50), verb: "fault", span: g.seconds(3, 60), rule: r})
	}
}

// simContainer is a container as one simulated process reaches it.
type simContainer struct {
	storage.Container
	by     *simProcess
	object string
}

func (w *simWire) Container(name string) storage.Container {
	return &simContainer{w.Account.Container(name), w.by, w.Name() + "/" + name}
}

func (c *simContainer) request(op, key string) simRequest {
	steps := map[string]string{"put blob": "object", "get blob": "fetch", "delete blob": "sweep"}
	return simRequest{op: op, object: c.object, key: key, step: steps[op]}
}

func (c *simContainer) Create(ctx context.Context) error {
	return runSim(c.by, ctx, c.request("create", ""), c.Container.Create)
}

func (c *simContainer) Put(ctx context.Context, name string, body []byte, metadata map[string]string) error {
	body, metadata = slices.Clone(body), maps.Clone(metadata) // as of a queue's message
	return runSim(c.by, ctx, c.request("put blob", name), func(ctx context.Context) error {
		return c.Container.Put(ctx, name, body, metadata)
	})
}

func (c *simContainer) Get(ctx context.Context, name string, offset, length int64) (storage.Blob, error) {
	return sendSim(c.by, ctx, c.request("get blob", name), func(ctx context.Context) (storage.Blob, error) {
		return c.Container.Get(ctx, name, offset, length)
	})
}

func (c *simContainer) Delete(ctx context.Context, name string) error {
	return runSim(c.by, ctx, c.request("delete blob", name), func(ctx context.Context) error {
		return c.Container.Delete(ctx, name)
	})
}

// List gives the answer as a whole, as Query does.
func (c *simContainer) List(ctx context.Context, prefix, from string) iter.Seq2[storage.Blob, error] {
	return func(yield func(storage.Blob, error) bool) {
		all, err := sendSim(c.by, ctx, c.request("list blobs", from), func(ctx context.Context) (all []storage.Blob, _ error) {
			for b, err := range c.Container.List(ctx, prefix, from) {
				if err != nil {
					return nil, err
				}
				all = append(all, b)
			}
			return all, nil
		})
		for _, b := range all {
			if !yield(b, nil) {
				return
			}
		}
		if err != nil {
			yield(storage.Blob{}, err)
		}
	}
}

// judgeConfig is the configuration of somebody outside who meets no fault.
func (w *simWorld) judgeConfig() pump.Config {
	c := pump.Config{Workload: "work", Instance: "judge", Segments: w.plan.segments, Delivery: w.plan.delivery, Retention: simRetention}
	for _, name := range w.sim.Accounts() {
		c.Accounts = append(c.Accounts, pump.Account{Storage: w.sure(name), Queues: w.plan.queues})
	}
	sim.In(&c).Seeding = w.turns.Of("judge")
	return c
}

// checkResults reads the results of each run that has a row. The processes have ended.
func (w *simWorld) checkResults(ctx context.Context, all []workload.Run, v *simVerdict) {
	if !w.plan.results {
		return
	}
	for _, r := range all {
		if v.gone[r.ID] {
			continue
		}
		got := map[simKey]int{}
		read, err := runs.Results(ctx, w.judgeConfig(), r.ID, runs.ResultsOptions{}, func(line []byte) error {
			var l struct {
				Segment uint32
				N       uint64
				Result  string
			}
			err := json.Unmarshal(line, &l)
			key := simKey{r.ID, l.Segment, l.N}
			if got[key]++; err == nil && l.Result != key.String() {
				w.wrongf("the result of %v is %q", key, l.Result)
			}
			return err
		})
		if err != nil {
			w.wrongf("lost: the results of run %v cannot be read: %v", r.ID, err)
			continue
		}
		w.countAll("results that were kept", int(read.Results))
		w.countAll("results of tasks that had one", int(read.Repeats))
		if w.plan.delivery == pump.Once && read.Repeats > 0 {
			w.wrongf("%d tasks of run %v have more than one result", read.Repeats, r.ID)
		}
		w.compareResults(r, v, got)
	}
}

// compareResults compares results with what handlers did. A task that was done and then dropped with its
// message, or is in quarantine, may lack its result: nothing records it as done.
func (w *simWorld) compareResults(r workload.Run, v *simVerdict, got map[simKey]int) {
	for key := range got {
		if task := w.tasks[key]; task == nil || task.effects == 0 {
			w.wrongf("%v has a result and was not done", key)
		}
	}
	dropped := r.State == workload.RunEnded && r.Drop
	for key, task := range w.tasks {
		if key.run == r.ID && task.effects > 0 && got[key] == 0 && !dropped && len(v.poison[key]) == 0 && w.touched[key] != "drop" {
			w.wrongf("lost: %v was done %d times and has no result; its run is %s", task, task.effects, r.State)
		}
	}
}

// sweeps plays the time in which runs grow old: one processor is there, which in half of the worlds
// dies in the midst of a sweep and is started again.
func (w *simWorld) sweeps(ctx context.Context) {
	within := simSwept
	switch {
	case len(w.wrong) > 0:
		return
	case w.plan.bodies:
		within = simAllOver
	case !w.plan.results || w.roll(2, "sweeps", 0) > 0:
		return
	}
	w.start(simSweeper)
	if w.plan.bodies {
		w.emptied(ctx)
	}
	if w.roll(2, "sweeps and dies", 0) == 0 {
		w.mu.Lock()
		p := w.latest[simSweeper]
		p.points = append(p.points, &simPoint{w.roll(2, "sweeps and dies after", 0) == 0, "sweep", 1 + int(w.roll(3, "sweeps and dies, nth", 0)), 0})
		w.mu.Unlock()
	}
	left := 0
	for began := time.Now(); time.Since(began) < within; {
		waits.Wait(ctx, 5*time.Minute)
		if w.plan.bodies {
			w.drops(ctx)
		}
		w.mu.Lock()
		over := w.latest[simSweeper].over()
		w.mu.Unlock()
		if over {
			w.start(simSweeper)
		}
		if left = w.leftOfResults(ctx, false) + w.leftOfBodies(ctx, false); left == 0 && time.Since(began) > simRetention {
			break
		}
	}
	if left > 0 {
		w.leftOfResults(ctx, true)
		w.leftOfBodies(ctx, true)
	}
	w.count("worlds whose results were swept")
	w.ends(ctx)
}

// leftOfResults counts the objects, and rows that lead to objects, of which no run has a row.
func (w *simWorld) leftOfResults(ctx context.Context, tell bool) (left int) {
	all, err := w.runs(ctx)
	if err != nil {
		w.wrongf("the runs cannot be read: %v", err)
	}
	known := map[codec.RunID]bool{}
	for _, r := range all {
		known[r.ID] = true
	}
	is := func(what string, of ...codec.RunID) {
		if slices.ContainsFunc(of, func(id codec.RunID) bool { return known[id] }) {
			return
		}
		if left++; tell {
			w.wrongf("%s is left, and none of its runs %v has a row", what, of)
		}
	}
	for _, name := range w.sim.Accounts() {
		for b, err := range w.sure(name).Container(results.Container("work")).List(ctx, "", "") {
			if err != nil {
				break // there is none
			}
			of, _ := results.RunsOf(b.Metadata)
			is(name+"/"+b.Name, of...)
		}
	}
	for e, err := range w.openTable().Query(ctx, storage.Query{Partition: results.Partition("work")}) {
		if err == nil && len(e.Row) > 32 { // the others say what there is
			id, _ := codec.ParseRunID(e.Row[:32])
			is(e.Partition+"/"+e.Row, id)
		}
	}
	return left
}
