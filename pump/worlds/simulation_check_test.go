package worlds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
)

// simTask is what became of one task.
type simTask struct {
	simKey
	source *simSource
	record int

	begun    int // handlings that were begun
	deaths   int // of processes that had it in hand
	effects  int // handlings that came to their end
	released int
	busy     map[*simProcess]int // handlings under way
}

func (t *simTask) String() string { return fmt.Sprintf("%v/%d/%d", t.run, t.segment, t.n) }

// simJudge is what is noted on the way. It is guarded by world.mu.
type simJudge struct {
	offset, back time.Duration // of the service's clock: now, and all steps back
	effects      int
	repeated     int // effects on a task that had one already
	runs         int
	sealed       int
	closed       int
	broken       int
	ended        int
	fences       map[simFence]string            // whose each is
	fenced       []time.Time                    // when each was made
	shut         map[codec.RunID]bool           // runs that were closed when copies of their messages were put
	left         map[simKey]bool                // tasks that were done and were left in quarantine
	known        map[simKey]bool                // those of which a redrive was interrupted since
	keyed        map[string]map[*simProcess]int // handlers at work, by key
	owning       map[string]string              // what is under way with a message's receipt, by process and message
}

// simFence is a segment's head under one epoch.
type simFence struct {
	head  string
	epoch int64
}

// begins notes that a handler was given a task, which must be one that its source has.
func (w *simWorld) begins(p *simProcess, t *pump.Task) (*simTask, error) {
	name, record, err := recordOf(t.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	source := w.sources[name]
	if source == nil || record >= source.n || source.key(record) != string(t.Key) {
		return nil, fmt.Errorf("%q of key %q is of no source", t.Body, t.Key)
	}
	key := simKey{t.Run, t.Segment, t.N}
	if !source.isTask(record, key) {
		return nil, fmt.Errorf("record %d of source %s is task %d of segment %d", record, name, t.N, t.Segment)
	}
	task := w.tasks[key]
	if task == nil {
		task = &simTask{simKey: key, source: source, record: record}
		w.tasks[key] = task
		first := simKey{t.Run, t.Segment, 0}
		w.most[first] = max(w.most[first], t.N+1)
	}
	if err := judgeBody(source, record, t.Body); err != nil {
		return nil, err
	}
	if task.record != record {
		return nil, fmt.Errorf("%v is record %d of source %s and record %d of source %s", task, task.record, task.source.name, record, name)
	}
	if task.source != source {
		return nil, fmt.Errorf("run %v has tasks of source %s and of %s", t.Run, task.source.name, name)
	}
	if task.begun++; w.judge.shut[t.Run] {
		w.wrong = append(w.wrong, fmt.Sprintf("%s handles %v, whose run was closed (P1.3)", p, task))
	}
	if w.judge.known[key] {
		w.wrong = append(w.wrong, fmt.Sprintf("%s handles %v again, which was done when it was redriven (P4.4)", p, task))
	}
	w.judgePauseLocked(p, task)
	if task.busy == nil {
		task.busy = map[*simProcess]int{}
	}
	if task.busy[p]++; task.busy[p] > 1 && w.plan.delivery == pump.Once {
		w.wrong = append(w.wrong, fmt.Sprintf("%s handles %v twice at the same time (P3.4)", p, task))
	}
	p.hands++
	w.judgeKeyLocked(p, string(t.Key), +1)
	w.noteLocked(p.String(), fmt.Sprintf("handles %v, attempt %d", task, t.Attempt))
	return task, nil
}

// returns notes that a handler has come to its end, whichever.
func (w *simWorld) returns(p *simProcess, task *simTask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.hands--
	task.busy[p]--
	w.judgeKeyLocked(p, task.source.key(task.record), -1)
}

// works is for how long a task is worked on: mostly for a small part of the longest time. No
// two tasks are ready in the same nanosecond (P9).
func (w *simWorld) works(task *simTask, t *pump.Task) time.Duration {
	const steps = 1 << 20
	share := float64(task.source.roll(steps, fmt.Sprint("work ", t.Attempt), task.record)) / steps
	least := time.Microsecond + time.Duration(task.source.roll(1000, "least", task.record))
	return least + time.Duration(share*share*share*share*float64(w.plan.work))
}

// fails is what a task's record says of its handling.
func (w *simWorld) fails(p *simProcess, task *simTask, t *pump.Task) error {
	fate, attempts := task.source.fate(task.record)
	switch {
	case w.saysNotNow(p):
		hint := time.Duration(task.source.roll(uint64(20*time.Second), "not now", task.record))
		return pump.Busy(hint, nil)
	case fate == simRejected:
		return pump.Reject(testworld.ErrFlop)
	case fate == simHopeless || fate == simFails && t.Attempt <= attempts:
		return testworld.ErrFlop
	case fate == simLater && t.Attempt <= attempts:
		return pump.RetryAfter(time.Duration(task.source.roll(uint64(4*time.Second), "later", task.record)), nil)
	case fate == simPanics && t.Attempt <= attempts:
		panic("a simulated handler panics")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if fate == simRelease && task.released == 0 {
		task.released++
		return pump.Release(testworld.ErrFlop)
	}
	return nil
}

// effect is the moment in which a task is done, as far as the world outside knows.
func (w *simWorld) effect(p *simProcess, task *simTask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge.effects++
	if task.effects++; task.effects > 1 && !w.plan.isFull(task.segment) {
		w.judge.repeated++
	}
	w.noteLocked(p.String(), fmt.Sprint("does ", task))
}

// wrote looks at rows as they come to stand in the control table. Of two processes only one is
// ever let write a segment's ledger under an epoch (P3.2).
func (w *simWorld) wrote(writes []storage.Write, err error) {
	if err != nil {
		return
	}
	for _, write := range writes {
		if instance, is := strings.CutPrefix(write.Entity.Row, "present."); is && write.Mode != storage.Remove {
			w.mu.Lock()
			w.beatLocked(instance)
			w.mu.Unlock()
		}
		if write.Entity.Properties["Name"] == simName {
			w.mu.Lock()
			w.namedRow = write.Entity.Row
			w.mu.Unlock()
		}
		owner, ok := write.Entity.Properties["Owner"].(string)
		epoch, is := write.Entity.Properties["Epoch"].(int64)
		if !ok || !is || !strings.HasPrefix(write.Entity.Row, "head.") {
			continue
		}
		f := simFence{write.Entity.Row, epoch}
		w.mu.Lock()
		was := w.judge.fences[f]
		if was == "" {
			w.judge.fences[f] = owner
			w.judge.fenced = append(w.judge.fenced, time.Now())
			w.counts["fences"]++
		}
		w.mu.Unlock()
		if was != "" && was != owner {
			w.wrongf("%s was written under epoch %d by %s and by %s", f.head, epoch, was, owner)
		}
	}
}

// bound is within which time after the last fault everything is done. It adds up what
// each thing that may still be amiss takes at most:
//
//   - The electors and the owners notice the dead one after the other, and others claim or take
//     over what those had, which may take a lease more: three leases, margins and some beats.
//   - Messages of the dead and those that were hidden by a lost answer come back when their
//     visibility ends, for which the service's clock may have to make up what it was put back by.
//     A message may go through that twice: the copy, or the piece of it, of a second process.
//   - The rest of the source is read, and each of up to 4 attempts fails. An attempt takes its
//     back-off, and the time that the message of others that it shares asks for: twice as long and
//     a second (pump/processor/internal/settle/plan.go).
//   - One processor's handlers work off the rest, which takes a fifth of the longest time a task in
//     the mean (simWorld.works). They do all of it twice, as tasks fail, and ten times as slowly if
//     processors share queues (P7). The rest is what was put and is not done, of every run so far:
//     a live source has one each half minute. One more source stands for tasks that are still read,
//     or read again because their run was broken.
//   - A queue that went dark twice is held dark for up to 5 minutes, and a mark stays for a minute
//     after its queue has become quiet (P6.3).
//   - Operators give up after simPatience, may have hidden messages in quarantine, and what they
//     put back is tried anew.
//   - A run of files that changed is broken. The next one begins a while after, and reads more than
//     there was at first. A distributor that could not read them stands back for a minute and a
//     half.
//   - An account that is gone for good is drained, and removed ten minutes later.
//   - Budgets that were cut to a hundredth climb by 2 % of the whole in a second.
func (w *simWorld) bound() time.Duration {
	p := w.plan
	dead := 3*p.lease() + 3*p.beat + 6*p.beat
	hidden := 2*p.visibility + w.judge.back
	retries := simAttempts * (2*simRetryMax + time.Second)
	handling := 4*p.work + 2*time.Duration(w.undone()+p.tasks)*p.work/time.Duration(5*p.handlers)
	if p.queues*p.accounts < simProcessors {
		handling *= 10 // P7
	}
	if p.work > p.visibility { // all that is left may be suspected, and the last attempts are made alone
		handling += 2 * time.Duration(w.undone()) * p.work / 5
	}
	operators := time.Duration(0)
	if slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb == "operate" }) {
		operators = simPatience + retries + quarantine.Lease
	}
	changes := time.Duration(0)
	if p.files > 0 {
		changes = 2 * distributor.UnreadPause
	}
	if p.changes() {
		changes = simSoon + 2*p.pace + 2*distributor.UnreadPause
	}
	if p.full {
		changes += simFullFor
	}
	if p.pausingParts() { // what was put back comes when its delay is over
		changes += putOffMost
	}
	if p.named() { // it is read again, when one who sent it is dead
		changes += dead + 2*p.pace
	}
	if len(w.lost) > 0 { // see simProcess.loses
		changes += simGivingUp + simPatience
	}
	return changes + dead + hidden + p.pace + retries + handling + operators + 6*time.Minute + 50*time.Second
}

// verdict is what there is to judge by.
type simVerdict struct {
	runs    map[codec.RunID]*simSource
	ended   map[codec.RunID]bool
	gone    map[codec.RunID]bool // whose rows are
	poison  map[simKey][]string  // for what each task is in quarantine
	bad     map[string]int       // how often each bad record is
	records []*ledger.SegmentRecord
	// forgotten are tasks that were done and whose records were rolled back.
	forgotten map[simKey]bool
}

// check stops the processors and judges what has come of everything.
func (w *simWorld) check(ctx context.Context) {
	runs, err := w.runs(ctx)
	if err != nil {
		w.wrongf("the runs cannot be read: %v", err)
		return
	}
	w.checkHands(runs)
	if !w.ends(ctx) {
		return
	}
	v := &simVerdict{runs: map[codec.RunID]*simSource{}, ended: map[codec.RunID]bool{}, gone: map[codec.RunID]bool{}}
	if v.poison, v.bad, err = w.poison(ctx); err != nil {
		w.wrongf("the poison queues cannot be read: %v", err)
		return
	}
	if !w.readRecords(ctx, v) {
		return
	}
	if runs, err = w.runs(ctx); err != nil {
		w.wrongf("the runs cannot be read: %v", err)
		return
	}
	there := len(runs)
	runs = w.withGone(runs)
	for _, r := range runs[there:] {
		v.gone[r.ID] = true
	}
	for _, r := range runs {
		v.runs[r.ID], v.ended[r.ID] = w.sourceOf(r), r.State == workload.RunEnded
	}
	w.findForgotten(ctx, v)
	for _, r := range runs {
		w.checkRun(r, v)
	}
	for key, task := range w.tasks {
		if v.runs[key.run] != task.source {
			w.wrongf("%v was handled, and is of source %s, but that is not its run's", task, task.source.name)
		}
	}
	w.checkSent(v)
	w.checkNamed(runs)
	w.checkForeign()
	w.checkFiles(runs)
	w.checkBuried(runs)
	w.checkNewer(ctx)
	w.checkPut(ctx, runs, v)
	w.checkRecords(v)
	w.checkRepeats(v)
	w.checkAccounts(ctx)
	w.checkOneWorkload(ctx)
	w.checkQuiet(ctx)
	w.checkResults(ctx, runs, v)
	if w.plan.delivery == pump.Once && w.judge.effects > 0 && len(w.judge.fences) == 0 {
		w.wrongf("tasks were done in mode once, and no process was seen to fence a segment")
	}
	if w.plan.reducer {
		w.checkStates(runs, v)
	}
}

// ends stops the processors and waits for them.
func (w *simWorld) ends(ctx context.Context) bool {
	w.mu.Lock()
	all := slices.Clone(w.all)
	w.mu.Unlock()
	for _, p := range all {
		p.stop()
	}
	soon, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	good := true
	for _, p := range all {
		if p.dead {
			continue
		}
		select {
		case <-p.ended:
			if !p.endedWell() && (p.name[0] == 'd' || p.name[0] == 'p') {
				w.wrongf("%s ended with an error: %v", p, p.err)
			}
		case <-soon.Done():
			w.wrongf("%s does not end", p)
			good = false
		}
	}
	return good
}

// sourceOf is what a run is a distribution of.
func (w *simWorld) sourceOf(r workload.Run) *simSource {
	switch {
	case r.Name != "":
		return w.sources["named"]
	case r.Mode == "every":
		return w.sources["elected"]
	case r.Instance[0] != 's':
		return w.sources[r.Instance]
	}
	for key, t := range w.tasks {
		if key.run == r.ID {
			return t.source
		}
	}
	return &simSource{plan: w.plan, name: r.Instance, sent: true} // nothing of it was ever handled
}

func (w *simWorld) checkRun(r workload.Run, v *simVerdict) {
	r = w.asSealed(r)
	source := v.runs[r.ID]
	w.judge.runs++
	switch r.State {
	case workload.RunBroken:
		w.judge.broken++
		return
	case workload.RunOpen, workload.RunAbandoned, workload.RunEnded: // see checkPut
		return
	case workload.RunClosed:
		w.judge.closed++
	}
	w.judge.sealed++
	for segment, sealed := range r.Sealed {
		records := w.tasksOf(source, simKey{r.ID, uint32(segment), 0}, sealed)
		if int(sealed) != len(records) {
			w.wrongf("run %v is sealed with %d tasks of segment %d, and its source has %d", r.ID, sealed, segment, len(records))
		}
		for n, record := range records {
			key := simKey{r.ID, uint32(segment), uint64(n)}
			if poison := v.poison[key]; v.gone[r.ID] && len(poison) > 0 && !slices.ContainsFunc(poison, func(reason string) bool { return reason != codec.ReasonUnknownRun }) {
				w.count("tasks in quarantine whose run has no row any more")
				continue // people decide, for it may have been done
			}
			w.checkTask(key, record >= 0 && source.condemned(record), v.poison[key])
			if w.plan.delivery == pump.Once {
				w.checkRecord(r, key, v)
			}
		}
	}
	for i := range source.n {
		if source.bad(i) && v.bad[source.body(i)] == 0 {
			w.wrongf("bad record %d of source %s is in no poison queue", i, source.name)
		}
	}
}

// checkTask judges by what its handlings were and by the poison queues what has become of a
// task of a sealed run.
func (w *simWorld) checkTask(key simKey, condemned bool, poison []string) {
	task := w.tasks[key]
	if task == nil {
		w.wrongf("lost: %v was never handled", key)
		return
	}
	switch {
	case w.plan.isFull(key.segment):
		w.judgeFull(task, condemned, poison)
	case w.plan.fewer() && w.judgeFewer(task, poison):
	case !condemned && w.suspected(poison):
	case condemned && task.effects > 0:
		w.wrongf("%v was done, though it always fails", task)
	case condemned && len(poison) == 0 && w.touched[key] == "drop":
	case condemned && len(poison) == 0:
		w.wrongf("lost: %v failed %d times and is in no poison queue", task, task.begun)
	case !condemned && task.effects == 0:
		w.wrongf("lost: %v was begun %d times and never done; poison %v", task, task.begun, poison)
	case !condemned && len(poison) > 0 && w.touched[key] == "":
		w.wrongf("%v is in quarantine, for %v", task, poison)
	}
}

// checkRepeats bounds how often tasks were done that were done before. A request that goes wrong
// can show a get's worth of messages twice, with their tasks. A process that dies or stops can show
// all that it may have in hand. A distributor that takes a run over distributes again what no
// checkpoint says (P2.5). What was rolled back is forgotten.
func (w *simWorld) checkRepeats(v *simVerdict) {
	w.mu.Lock()
	wrong := w.troubleLocked()
	most := wrong*storage.MaxGet*w.plan.pack + (w.counts[simTakenOver]+w.counts["named runs given"])*w.plan.tasks
	repeated := w.judge.repeated - w.again(v)
	w.mu.Unlock()
	if repeated > most {
		w.wrongf("%d tasks were done again that no ledger forgot, after %d things that went wrong", repeated, wrong)
	}
}

func (k simKey) String() string { return fmt.Sprintf("%v/%d/%d", k.run, k.segment, k.n) }
