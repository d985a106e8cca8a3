package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Parking is an operator's mark that the tasks of a run, or of a key, wait in parking queues until
// it is resumed; see "Pause" in docs/design.md. Its queues stand in the map, where they drain: so
// all who count, list or remove queues know them, and a program that knows no such mark brings home
// what is in them.
type Parking struct {
	Number int         `json:"number"` // 1 to MaxParkings, names its queues
	Run    codec.RunID `json:"run"`    // zero: it is of a key
	Key    []byte      `json:"key,omitempty"`
	Since  time.Time   `json:"since"` // by the clock of the machine at which it was ordered
	By     string      `json:"by"`
	// Returning is since when what is parked comes home; zero: it is paused.
	Returning time.Time `json:"returning,omitzero"`
}

// MaxParkings is how many of them a workload has at most: each costs each account a queue.
const MaxParkings = 8

// MaxParkedKey is the longest key that can be paused, in bytes.
const MaxParkedKey = 512

// Errors of Park.
var (
	// ErrParkings: so many runs and keys are paused, or come home, that there is no number left.
	ErrParkings = errors.New("no more runs and keys can be paused at the same time")
	// ErrParkingTaken: the number is in use by now.
	ErrParkingTaken = errors.New("the number of a parking queue was taken meanwhile")
)

// Holds reports whether what it is about is paused now.
func (p *Parking) Holds() bool { return p.Returning.IsZero() }

// Same reports whether two marks are about the same run or key.
func (p *Parking) Same(q *Parking) bool { return p.Run == q.Run && bytes.Equal(p.Key, q.Key) }

// String says what it is about.
func (p *Parking) String() string {
	if p.Run.IsZero() {
		return fmt.Sprintf("key %q", p.Key)
	}
	return "run " + p.Run.String()
}

const parkingPart = "-park-"

// PoisonQueue is the queue of each account that its quarantined messages go to.
func PoisonQueue(workload string) string { return workload + "-poison" }

// ParkingQueue is the queue of each account for what the mark of a number parks.
func ParkingQueue(workload string, number int) string {
	return workload + parkingPart + strconv.Itoa(number)
}

// ParkingNumber is the number of a parking queue; 0: the queue is none.
func ParkingNumber(workload, queue string) int {
	number, ok := strings.CutPrefix(queue, workload+parkingPart)
	if n, err := strconv.Atoi(number); ok && err == nil && n >= 1 && n <= MaxParkings {
		return n
	}
	return 0
}

// ParkingOf is the number of a shard's parking queue; 0: it is none.
func ParkingOf(workload string, s *shardmap.Shard) int {
	if s.State == shardmap.Foreign {
		return 0
	}
	return ParkingNumber(workload, s.Queue)
}

// Held is the mark that holds of a run; nil: there is none.
func (w *Workload) Held(run codec.RunID) *Parking {
	for i := range w.Parkings {
		if p := &w.Parkings[i]; p.Run == run && !run.IsZero() && p.Holds() {
			return p
		}
	}
	return nil
}

// HeldKey is the mark that holds of a key; nil: there is none.
func (w *Workload) HeldKey(key []byte) *Parking {
	for i := range w.Parkings {
		if p := &w.Parkings[i]; p.Run.IsZero() && p.Holds() && bytes.Equal(p.Key, key) {
			return p
		}
	}
	return nil
}

// HoldsKeys reports whether a key is paused whose segment this is.
func (w *Workload) HoldsKeys(segment uint32) bool {
	return slices.ContainsFunc(w.Parkings, func(p Parking) bool {
		return p.Run.IsZero() && p.Holds() && shardmap.Segment(p.Key, w.Map.Segments) == segment
	})
}

// Parked says of each shard of the map which mark's messages it keeps, by its number; 0: none, or
// what is in it comes home.
func (w *Workload) Parked() []int {
	of := make([]int, len(w.Map.Shards))
	for i := range w.Map.Shards {
		n := ParkingOf(w.Name, &w.Map.Shards[i])
		if at := numbered(w.Parkings, n); at >= 0 && w.Parkings[at].Holds() {
			of[i] = n
		}
	}
	return of
}

// NextParking is the lowest number that no mark has and whose queues are not in the map; 0: there
// is none.
func (w *Workload) NextParking() int { return nextParking(w.Name, w.Map, w.Parkings) }

func nextParking(name string, m *shardmap.Map, list []Parking) int {
	for n := 1; n <= MaxParkings; n++ {
		inMap := slices.ContainsFunc(m.Shards, func(s shardmap.Shard) bool {
			return ParkingOf(name, &s) == n
		})
		if !inMap && numbered(list, n) < 0 {
			return n
		}
	}
	return 0
}

func numbered(list []Parking, n int) int {
	return slices.IndexFunc(list, func(p Parking) bool { return p.Number == n })
}

// Park pauses a run or a key: from then on its mark is there and, in each account of the map, its
// parking queue. The queues should exist before. A run or key that is paused already stays so, as
// of then, and gets the queues that it lacks. One that comes home is paused again. The error is
// [ErrParkingTaken] if another mark has got the number. Park applies once at most and gives up
// after a minute, as [ChangeMap].
func Park(
	ctx context.Context, t storage.Table, workload string, p Parking,
) (w *Workload, changed bool, err error) {
	p.Since, p.By = p.Since.UTC().Truncate(time.Microsecond), row.Clip(p.By)
	return changeRow(ctx, t, workload, func(is Row) (Row, bool, error) {
		if at := slices.IndexFunc(is.parkings, func(q Parking) bool { return p.Same(&q) }); at >= 0 {
			again := p
			again.Number = is.parkings[at].Number
			held := is.parkings[at].Holds()
			if !held {
				is.parkings = slices.Clone(is.parkings)
				is.parkings[at] = again
			}
			shards := AddParking(workload, is.shards.Shards, is.parkings)
			if len(shards) == len(is.shards.Shards) {
				return is, !held, nil
			}
			return is.withShards(shards)
		}
		switch next := nextParking(workload, is.shards, is.parkings); {
		case next == 0:
			return is, false, ErrParkings
		case next != p.Number:
			return is, false, ErrParkingTaken
		}
		is.parkings = append(slices.Clone(is.parkings), p)
		return is.withShards(AddParking(workload, is.shards.Shards, is.parkings))
	})
}

// AddParking gives shards of a map with the parking queues that marks lack in its accounts.
// Otherwise, once the last account with one was removed, paused messages would go back again and
// again.
func AddParking(workload string, shards []shardmap.Shard, marks []Parking) []shardmap.Shard {
	shards = slices.Clone(shards)
	for _, p := range marks {
		var accounts, with []string
		for _, s := range shards {
			if !slices.Contains(accounts, s.Account) {
				accounts = append(accounts, s.Account)
			}
			if ParkingOf(workload, &s) == p.Number {
				with = append(with, s.Account)
			}
		}
		for _, a := range accounts {
			if p.Holds() && !slices.Contains(with, a) {
				shards = append(shards, shardmap.Shard{
					Account: a, Queue: ParkingQueue(workload, p.Number), State: shardmap.Draining,
				})
			}
		}
	}
	return shards
}

func (w Row) withShards(shards []shardmap.Shard) (next Row, changed bool, err error) {
	m, err := w.shards.Change(shards)
	if err != nil {
		return w, false, err
	}
	w.shards, w.origin = m, 0
	return w, true, nil
}

// Unpark lets what is parked of a run or a key come home. Changed is false if it is not paused.
func Unpark(
	ctx context.Context, t storage.Table, workload string, p Parking,
) (w *Workload, changed bool, err error) {
	p.Returning = p.Returning.UTC().Truncate(time.Microsecond)
	return changeRow(ctx, t, workload, func(is Row) (Row, bool, error) {
		at := slices.IndexFunc(is.parkings, func(q Parking) bool { return p.Same(&q) })
		if at < 0 || !is.parkings[at].Holds() {
			return is, false, nil
		}
		is.parkings = slices.Clone(is.parkings)
		is.parkings[at].Returning = p.Returning
		return is, true, nil
	})
}

// Returning are the numbers of the parking queues in the map whose messages come home.
func (w *Workload) Returning() (numbers []int) {
	for i := range w.Map.Shards {
		n := ParkingOf(w.Name, &w.Map.Shards[i])
		if n == 0 || slices.Contains(numbers, n) {
			continue
		}
		if at := numbered(w.Parkings, n); at < 0 || !w.Parkings[at].Holds() {
			numbers = append(numbers, n)
		}
	}
	for _, p := range w.Parkings { // its accounts were removed, and its queues with them
		if !p.Holds() && !slices.Contains(numbers, p.Number) {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// EndParking takes a mark whose queues were found empty out of the row, and its queues out of the
// map, unless it was paused again since it was judged.
func EndParking(ctx context.Context, judged *Workload, number int) (changed bool, err error) {
	_, changed, err = changeRow(ctx, judged.Table, judged.Name, func(is Row) (Row, bool, error) {
		at, was := numbered(is.parkings, number), numbered(judged.Parkings, number)
		if is.shards.Version != judged.Map.Version || (at < 0) != (was < 0) ||
			at >= 0 && (is.parkings[at].Holds() ||
				!is.parkings[at].Returning.Equal(judged.Parkings[was].Returning)) {
			return is, false, nil
		}
		if at >= 0 {
			is.parkings = slices.Delete(slices.Clone(is.parkings), at, at+1)
		}
		shards := slices.DeleteFunc(slices.Clone(is.shards.Shards), func(s shardmap.Shard) bool {
			return ParkingOf(judged.Name, &s) == number
		})
		if len(shards) == len(is.shards.Shards) {
			return is, at >= 0, nil
		}
		return is.withShards(shards)
	})
	return changed, err
}

func encodeParkings(list []Parking) string {
	text, _ := json.Marshal(list) // of which no part can fail
	return string(text)
}

func decodeParkings(f *row.Fields) (list []Parking) {
	text := f.Text("Parkings")
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		f.Fail("Parkings", "is no list of paused runs and keys: "+err.Error())
		return nil
	}
	for i := range list {
		p := &list[i]
		if p.Number < 1 || p.Number > MaxParkings || numbered(list[:i], p.Number) >= 0 ||
			p.Run.IsZero() == (len(p.Key) == 0) || len(p.Key) > MaxParkedKey {
			f.Fail("Parkings", fmt.Sprintf("entry %d is no mark of a run or a key", i))
			return nil
		}
		p.By = row.Clip(p.By)
	}
	return list
}
