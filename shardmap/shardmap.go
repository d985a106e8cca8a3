package shardmap

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// State says whether a shard is the home of segments.
type State string

// The states of a shard.
const (
	// Active shards are homes and spill targets. The empty state means active.
	Active State = "active"
	// Draining shards get no new messages but are still read until empty.
	Draining State = "draining"
	// Foreign shards are queues that other programs put messages into. They are read and never
	// put into, and they are the home of no segment; their weight means nothing.
	Foreign State = "foreign"
)

// Bounds of a shard list.
const (
	// MaxShards is the largest number of shards of a map, draining ones included: 409
	// accounts of the ten queues that use up an account's limit. To place 16,384
	// segments on so many takes a few seconds.
	MaxShards = 4096
	// MinWeight and MaxWeight bound a shard's weight, which is kept in steps of
	// MinWeight so that shares are exact whole-number arithmetic everywhere. A
	// millionth is fine enough for an account's weight spread over its queues.
	MinWeight = 0.000001
	MaxWeight = 1000

	stepsPerUnit = 1_000_000
	// maxName is the longest name of a queue, and more than that of an account.
	maxName = 63
)

// Errors of New and Change; each is wrapped with the offending value.
var (
	// ErrSegments: the number of segments is not a multiple of 64 up to MaxSegments, and not 1, 2, 4,
	// 8, 16 or 32.
	ErrSegments = errors.New("the number of segments must be a multiple of 64, up to 16384")
	// ErrShards: the list of shards is empty, too long, or has a wrong entry.
	ErrShards = errors.New("invalid list of shards")
	// ErrFewSegments: there are more active shards than segments, so some would be the
	// home of none.
	ErrFewSegments = errors.New("there are more queues than segments")
	// ErrNoActive: no shard of the list is active, so segments would have no home.
	ErrNoActive = errors.New("no shard is active")
)

// Shard is one queue of one storage account.
type Shard struct {
	Account, Queue string
	// Weight is the shard's share relative to the others', MinWeight to
	// MaxWeight, rounded to steps of MinWeight; 0 means 1.
	Weight float64
	State  State
}

// Map gives each segment its home shard. A Map never changes after it was made
// or unmarshalled, so any number of goroutines may use it; its exported fields
// are for reading only.
type Map struct {
	// Version is 1 for a new map and one more after each Change.
	Version uint64
	// Segments is S.
	Segments int
	// Shards are in the order given to New or Change.
	Shards []Shard

	homes  []uint16 // by segment, index into Shards
	hashes []uint64 // by shard: its side of the rendezvous costs
}

// Check reports what [New] would refuse, except [ErrTooLarge], without placing segments, which
// takes seconds for thousands of shards.
func Check(segments int, shards []Shard) error {
	if err := checkSegments(segments); err != nil {
		return err
	}
	m, err := blank(segments, shards)
	if err != nil {
		return err
	}
	return m.checkRoom(0)
}

// Active counts the shards that are the home of segments.
func (m *Map) Active() (n int) {
	for _, s := range m.Shards {
		if s.State == Active {
			n++
		}
	}
	return n
}

// checkRoom refuses more active shards than segments, unless there were as many before: such maps
// may shrink.
func (m *Map) checkRoom(before int) error {
	if n := m.Active(); n > m.Segments && n > before {
		return fmt.Errorf("%w: %d queues of %d segments, and some would be the home of none",
			ErrFewSegments, n, m.Segments)
	}
	return nil
}

// New makes version 1 of a map. The homes depend on the number of segments and
// the set of shards, not on their order. Shards is not kept.
func New(segments int, shards []Shard) (*Map, error) {
	if err := checkSegments(segments); err != nil {
		return nil, err
	}
	m, err := blank(segments, shards)
	if err == nil {
		err = m.checkRoom(0)
	}
	if err != nil {
		return nil, err
	}
	m.Version = 1
	return m.placed(nil)
}

// Change makes the next version with another list of shards. Segments stay where they are unless
// their shard is gone, drains, or is over its share, or a shard would be under its share; no other
// map that keeps the shares moves fewer segments. Shards are recognised by account and queue. The
// receiver is not changed.
func (m *Map) Change(shards []Shard) (*Map, error) {
	next, err := blank(m.Segments, shards)
	if err == nil {
		err = next.checkRoom(m.Active())
	}
	if err != nil {
		return nil, err
	}
	if m.Version == math.MaxUint64 {
		return nil, errors.New("the map's version is at its maximum")
	}
	next.Version = m.Version + 1
	return next.placed(m)
}

// placed gives m its homes and checks that it can be stored.
func (m *Map) placed(prev *Map) (*Map, error) {
	m.homes = place(m, prev)
	if _, err := m.MarshalBinary(); err != nil {
		return nil, err
	}
	return m, nil
}

// Home gives the home shard of a segment as an index into Shards. It panics if
// the segment is not below Segments.
func (m *Map) Home(segment uint32) int { return int(m.homes[segment]) }

// Accounts is the set of the accounts that the map's shards are in.
func (m *Map) Accounts() map[string]bool {
	all := map[string]bool{}
	for _, s := range m.Shards {
		all[s.Account] = true
	}
	return all
}

// Loads gives the number of segments that each shard is the home of.
func (m *Map) Loads() []int {
	loads := make([]int, len(m.Shards))
	for _, h := range m.homes {
		loads[h]++
	}
	return loads
}

// blank is a map of checked and normalised shards without homes.
func blank(segments int, shards []Shard) (*Map, error) {
	if len(shards) == 0 || len(shards) > MaxShards {
		return nil, fmt.Errorf("%w: %d shards, want 1 to %d", ErrShards, len(shards), MaxShards)
	}
	m := &Map{Segments: segments, Shards: slices.Clone(shards), hashes: make([]uint64, len(shards))}
	active := false
	for i := range m.Shards {
		s := &m.Shards[i]
		if err := s.normalise(); err != nil {
			return nil, fmt.Errorf("%w: shard %d: %w", ErrShards, i, err)
		}
		m.hashes[i] = shardHash(*s)
		active = active || s.State == Active
	}
	if !active {
		return nil, fmt.Errorf("%w: all %d drain or are other programs'", ErrNoActive, len(shards))
	}
	byName := slices.SortedFunc(slices.Values(m.Shards), compareNames)
	for i := 1; i < len(byName); i++ {
		if compareNames(byName[i-1], byName[i]) == 0 {
			return nil, fmt.Errorf("%w: %s/%s stands in it twice", ErrShards, byName[i].Account,
				byName[i].Queue)
		}
	}
	return m, nil
}

func checkSegments(segments int) error {
	few := segments > 0 && segments < SegmentStep && powerOfTwo(segments)
	if !few && !CanBeSegments(segments) {
		return fmt.Errorf("%w, not %d", ErrSegments, segments)
	}
	return nil
}

func powerOfTwo(n int) bool { return n&(n-1) == 0 }

// normalise checks a shard and fills in its defaults.
func (s *Shard) normalise() error {
	if err := checkName("account", s.Account); err != nil {
		return err
	}
	if err := checkName("queue", s.Queue); err != nil {
		return err
	}
	switch s.State {
	case "":
		s.State = Active
	case Active, Draining, Foreign:
	default:
		return fmt.Errorf("state %q is none of %q, %q and %q", s.State, Active, Draining, Foreign)
	}
	s.Weight = cmp.Or(s.Weight, 1)
	// The comparison is this way round so that NaN fails it.
	if !(s.Weight >= MinWeight && s.Weight <= MaxWeight) {
		return fmt.Errorf("weight %v of %s/%s is not from %v to %v", s.Weight, s.Account, s.Queue,
			MinWeight, MaxWeight)
	}
	s.Weight = stepsWeight(s.steps())
	return nil
}

// steps is the weight as a whole number of MinWeight; stepsWeight is the way back.
func (s Shard) steps() uint64          { return uint64(math.Round(s.Weight * stepsPerUnit)) }
func stepsWeight(steps uint64) float64 { return float64(steps) / stepsPerUnit }

// checkName admits what can stand in a host name or path and in a log line; the driver judges what
// a service does with it.
func checkName(what, name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%s name %q has %d bytes, want 1 to %d", what, name, len(name), maxName)
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' || c == '/' || c == '\\' {
			return fmt.Errorf("%s name %q has a character that is not printable ASCII, or a slash",
				what, name)
		}
	}
	return nil
}

func compareNames(a, b Shard) int {
	return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Queue, b.Queue))
}
