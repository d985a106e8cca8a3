package worlds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// simFiles are the files that the elected distributors read, as on a disk that all of them have.
// They are real files, and the world reads them as the pump does, so they change while it reads
// them.
type simFiles struct {
	dir string

	mu       sync.Mutex
	parts    []simPart
	versions []simVersion           // one after the other
	unread   map[string]time.Time   // by process, or "all": until when it cannot read
	fixed    map[string][]time.Time // by process: when it looked the files up
	replaced int                    // so often another file took the place of one
}

// simPart is a file as it is: its name and what is in it.
type simPart struct{ name, text string }

// simVersion is what the files held from a moment on: which record each task of a segment is.
type simVersion struct {
	from  time.Duration
	tasks map[uint32][]int
}

// simLine is as long as every line of the files: several of them are read at once, and never all.
const simLine = 512

// simForGood is for how long a machine cannot read a source that it never can again.
const simForGood = time.Hour

// simChanges are what may happen to files.
var simChanges = []string{"grow", "cut", "rewrite", "appear", "vanish", "replace"}

func (s *simSource) line(i int) string {
	line := fmt.Sprintf("%s %07d ", s.name, i)
	return line + strings.Repeat("x", simLine-1-len(line)) + "\n"
}

// onDisk makes files of the records of a source.
func (s *simSource) onDisk(dir string) error {
	s.files = &simFiles{dir: dir, unread: map[string]time.Time{}, fixed: map[string][]time.Time{}}
	parts := s.plan.files
	for part := range parts {
		p := simPart{name: fmt.Sprintf("part-%02d", 10*part)}
		for i := part * s.n / parts; i < (part+1)*s.n/parts; i++ {
			p.text += s.line(i)
		}
		s.files.parts = append(s.files.parts, p)
		if err := s.files.write(len(s.files.parts) - 1); err != nil {
			return err
		}
	}
	s.remember(0)
	return nil
}

func (f *simFiles) path(name string) string { return filepath.Join(f.dir, name) }

// write has a file on the disk as it is in memory. It replaces no line that was there, as a program
// that writes on would not.
func (f *simFiles) write(part int) error {
	p := f.parts[part]
	open, err := os.OpenFile(f.path(p.name), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = open.WriteAt([]byte(p.text), 0)
	return errors.Join(err, open.Truncate(int64(len(p.text))), open.Close(), os.Chtimes(open.Name(), time.Time{}, time.Now()))
}

// remember notes what the files hold from now on.
func (s *simSource) remember(now time.Duration) {
	v := simVersion{from: now, tasks: map[uint32][]int{}}
	for _, p := range s.files.parts {
		for line := range strings.Lines(p.text) {
			if i, ok := s.recordOfLine(strings.TrimSuffix(line, "\n")); ok {
				segment := shardmap.Segment([]byte(s.key(i)), s.plan.segments)
				v.tasks[segment] = append(v.tasks[segment], i)
			}
		}
	}
	s.files.versions = append(s.files.versions, v)
}

// recordOfLine is which record a whole line is. Of a line that was cut off it cannot be known.
func (s *simSource) recordOfLine(line string) (int, bool) {
	words := strings.Fields(line)
	if len(line) != simLine-1 || len(words) != 3 || words[0] != s.name {
		return 0, false
	}
	i, err := strconv.Atoi(words[1])
	return i, err == nil
}

// changeFiles is a step that changes what the elected distributors read.
func (w *simWorld) changeFiles(step simStep) {
	s := w.source("d1")
	if s.files == nil {
		return
	}
	w.count("source " + step.who)
	w.mu.Lock()
	defer w.mu.Unlock()
	f := s.files
	f.mu.Lock()
	defer f.mu.Unlock()
	roll := func(n int, what string) int { return int(s.roll(uint64(n), what, len(f.versions))) }
	records := func(n int) (text string) {
		for range n {
			text += s.line(s.n)
			s.n++
		}
		return text
	}
	part := roll(len(f.parts), "part")
	p := &f.parts[part]
	lines := len(p.text) / simLine
	switch {
	case step.who == "grow":
		p.text += records(1 + roll(30, "grows"))
	case step.who == "cut" && lines > 1: // at times within a line
		p.text = p.text[:len(p.text)-simLine*(1+roll(lines-1, "cut"))+roll(2, "within")*roll(simLine, "rest")]
	case step.who == "rewrite" && lines > 0:
		at := simLine * roll(lines, "rewritten")
		p.text = p.text[:at] + records(1) + p.text[at+simLine:]
	case step.who == "replace": // another file has its name, which begins as it did or does not
		f.replaced++
		p.text = p.text[:simLine*roll(lines+1, "alike")]
		p.text += records(max(1, lines-len(p.text)/simLine+roll(5, "longer")-2))
		if err := os.Remove(f.path(p.name)); err != nil {
			w.wrong = append(w.wrong, err.Error())
		}
	case step.who == "appear":
		name := fmt.Sprintf("part-%02d", 10*part+1+roll(9, "name"))
		if slices.ContainsFunc(f.parts, func(p simPart) bool { return p.name == name }) {
			return
		}
		part++
		f.parts = slices.Insert(f.parts, part, simPart{name, records(1 + roll(30, "new"))})
		slices.SortFunc(f.parts, func(a, b simPart) int { return strings.Compare(a.name, b.name) })
		part = slices.IndexFunc(f.parts, func(p simPart) bool { return p.name == name })
	case step.who == "vanish" && len(f.parts) > 1:
		must := os.Remove(f.path(p.name))
		f.parts = slices.Delete(f.parts, part, part+1)
		s.remember(w.now())
		if must != nil {
			w.wrong = append(w.wrong, must.Error())
		}
		return
	default:
		return
	}
	if err := f.write(part); err != nil {
		w.wrong = append(w.wrong, err.Error())
	}
	s.remember(w.now())
}

// replacedSources are files that others replace, or that are cut off, during a reading or between
// two.
func (g *simSeeded) replacedSources() {
	g.someFiles(15*time.Second, "ddp")
	at := g.seconds(4, 14)
	for n := range 6 + g.roll(3) { // some come when nobody reads
		who := "replace"
		if n%2 > 0 {
			who = []string{"replace", "cut"}[g.roll(2)]
		}
		g.step(simStep{at: at, verb: "source", who: who})
		at += g.seconds(3, 40)
	}
	g.events = 2 + g.roll(8)
}

// unread is a step after which a process, or all of them, cannot read the files for so long.
func (w *simWorld) unread(step simStep) {
	s := w.source("d1")
	if s.files == nil {
		return
	}
	w.count("source that cannot be read")
	if step.span < simForGood {
		w.lasts(step.span)
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	s.files.unread[step.who] = time.Now().Add(step.span)
}

// changes reports whether the files change. Files that do not are distributed just once, and no
// trouble with reading uses that up.
func (p *simPlan) changes() bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb == "source" })
}

// blind reports whether a process can never read its source again.
func (w *simWorld) blind(p *simProcess) bool {
	s := w.sources["elected"]
	if s == nil || s.files == nil || p.name[0] != 'd' {
		return false
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	return time.Until(s.files.unread[p.name]) > 0
}

// simShelf is the files as one process reaches them.
type simShelf struct {
	source *simSource
	by     *simProcess
}

// trouble is the error of a machine that cannot read.
func (s simShelf) trouble(what string) error {
	s.by.stopped(what)
	f := s.source.files
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Until(f.unread[s.by.name]) > 0 || time.Until(f.unread["all"]) > 0 {
		s.by.world.count("source: " + what + " failed")
		return &fs.PathError{Op: what, Path: f.dir, Err: syscall.EIO}
	}
	return nil
}

// fix looks the files up. The machine may fail here, or where it opens them, or where it reads
// them.
func (s simShelf) Fix(ctx context.Context, log *slog.Logger) (source.Source, error) {
	if s.by.roll(3, "where it fails", "", s.by.count("looks up")) > 0 {
		if err := s.trouble("stat"); err != nil {
			return nil, err
		}
	}
	f := s.source.files
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fixed[s.by.name] = append(f.fixed[s.by.name], time.Now())
	fixed, err := source.Lines(f.path("part-*")).Fix(ctx, log)
	if err != nil {
		return nil, err
	}
	return simFixed{s, fixed, f.replaced}, nil
}

func (s simShelf) Fingerprint(ctx context.Context) (string, error) {
	fixed, err := s.Fix(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	return fixed.Fingerprint(ctx)
}

func (s simShelf) Open(ctx context.Context, cursor []byte) (source.Reader, error) {
	fixed, err := s.Fix(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return fixed.Open(ctx, cursor)
}

// simFixed is the files as they were when a process looked them up.
type simFixed struct {
	simShelf
	found    source.Source
	replaced int // simFiles.replaced, then
}

func (s simFixed) Fix(context.Context, *slog.Logger) (source.Source, error) { return s, nil }

func (s simFixed) Fingerprint(ctx context.Context) (string, error) {
	return s.found.Fingerprint(ctx)
}

func (s simFixed) Open(ctx context.Context, cursor []byte) (source.Reader, error) {
	if s.by.roll(2, "where it fails at opening", "", s.by.count("opens")) > 0 {
		if err := s.trouble("open"); err != nil {
			return nil, err
		}
	}
	r, err := s.found.Open(ctx, cursor)
	if err != nil {
		return nil, err
	}
	return &simFileReader{Reader: r, simFixed: s}, nil
}

// simFileReader is the pump's reader of files, on a machine that takes its time and fails.
type simFileReader struct {
	source.Reader
	simFixed
	read int
}

// meets counts a reading in which a file was replaced.
func (r *simFileReader) meets() {
	f := r.source.files
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.replaced > r.replaced {
		r.by.world.count("met " + simMetReplaced)
	}
	r.replaced = f.replaced
}

func (r *simFileReader) Look(ctx context.Context) (bool, error) {
	return r.Reader.(source.Looker).Look(ctx)
}

func (r *simFileReader) Unchanged() error {
	r.meets()
	return r.Reader.(source.Lasting).Unchanged()
}

// Next gives records in bursts, each under the key and with the body of its number.
func (r *simFileReader) Next(ctx context.Context) (source.Record, error) {
	const burst = 10
	s := r.source
	if r.read%burst == 0 {
		d := s.plan.pace * burst / time.Duration(s.plan.tasks)
		if !waits.Wait(ctx, d/2+time.Duration(s.roll(uint64(d)+1, "pace", r.read))) {
			return source.Record{}, context.Cause(ctx)
		}
		if err := r.trouble("read"); err != nil {
			return source.Record{}, err
		}
	}
	r.meets()
	rec, err := r.Reader.Next(ctx)
	if err != nil {
		return rec, err
	}
	r.read++
	i, ok := s.recordOfLine(string(rec.Body))
	if !ok {
		return source.Record{}, &source.BadInput{Where: "a line that was cut off", Raw: []byte("cut off"), Err: io.ErrUnexpectedEOF}
	}
	return source.Record{Key: []byte(s.key(i)), ID: s.body(i), Body: []byte(s.body(i))}, nil
}

// checkFiles judges the runs of sources that may change. A sealed run has all that the files held
// when it began, and nothing else. A broken run has a cause that really was one. In no run is a
// record two tasks.
func (w *simWorld) checkFiles(runs []workload.Run) {
	src := w.sources["elected"]
	if src == nil || src.files == nil {
		return
	}
	type identity struct {
		run    codec.RunID
		record int
	}
	first := map[identity]*simTask{}
	for _, t := range w.tasks {
		if t.source != src {
			continue
		}
		id := identity{t.run, t.record}
		if other := first[id]; other != nil {
			w.wrongf("record %d of run %v is two tasks (at work twice at the same time): %v and %v", t.record, t.run, t, other)
		}
		first[id] = t
	}
	for _, r := range runs {
		switch {
		case r.Mode != closing.ModeEvery:
		case r.State == workload.RunSealed || r.State == workload.RunClosed:
			if !w.isVersion(r, w.versionOf(src.files, r)) {
				w.wrongf("lost: run %v is sealed with %d tasks, and when it began the files did not hold just those", r.ID, r.Tasks)
			}
		case r.State == workload.RunBroken && r.Note != neverBegun:
			w.count("runs broken by a change")
			if !strings.Contains(r.Note, source.ErrSourceChanged.Error()) || !w.changed(src.files, r) {
				w.wrongf("run %v was broken, and its source had not changed: %s", r.ID, r.Note)
			}
		}
	}
}

// looked is when who made a run looked the files up for it.
func (f *simFiles) looked(r workload.Run) (at time.Time) {
	for _, t := range f.fixed[r.Instance] {
		if !t.After(r.Started) {
			at = t
		}
	}
	return at
}

// versionOf is what the files held when a run began.
func (w *simWorld) versionOf(f *simFiles, r workload.Run) (v simVersion) {
	looked := f.looked(r)
	for _, of := range f.versions {
		if !w.began.Add(of.from).After(looked) {
			v = of
		}
	}
	return v
}

// isVersion reports whether a sealed run is what the files held at a moment.
func (w *simWorld) isVersion(r workload.Run, v simVersion) bool {
	for segment, sealed := range r.Sealed {
		records := v.tasks[uint32(segment)]
		if int(sealed) != len(records) {
			return false
		}
		for n, record := range records {
			if t := w.tasks[simKey{r.ID, uint32(segment), uint64(n)}]; t != nil && t.record != record {
				return false
			}
		}
	}
	return true
}

// changed reports whether the files changed between when who made a run looked them up and its end.
func (w *simWorld) changed(f *simFiles, r workload.Run) bool {
	looked := f.looked(r)
	return slices.ContainsFunc(f.versions, func(v simVersion) bool {
		at := w.began.Add(v.from)
		return !at.Before(looked) && !at.After(r.Ended.Add(time.Millisecond))
	})
}
