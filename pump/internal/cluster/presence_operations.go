package cluster

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/queuepump/queuepump/pump/internal/row"
)

const (
	// maxOperations bounds a member's counts by kind, in bytes: the counts over all accounts and, if
	// they fit, those of each account behind them, in the order of the names in Asked. An account
	// takes some 25 bytes. The muster has the least room: with 250 accounts a member of it already
	// takes 7.7 KiB.
	maxOperations = 2 << 10
	// maxDayCounts bounds how many kinds of requests a row may tell of.
	maxDayCounts = 100
	maxDayKind   = 40 // bytes of a name
)

// AskedOf gives what the beats of a process say of its requests to each account: by service, and
// packed by kind.
func AskedOf(counts map[string]OpCounts) (of map[string]Asked, packed []byte) {
	of = make(map[string]Asked, len(counts))
	for name, n := range counts {
		of[name] = Asked{n.Of(QueueService), n.Of(TableService)}
	}
	counted := []OpCounts{{}}
	for _, name := range askedNames(of) {
		counted[0] = counted[0].Add(counts[name])
		counted = append(counted, counts[name])
	}
	if packed = PackOps(counted); len(packed) > maxOperations {
		packed = PackOps(counted[:1])
	}
	return of, packed
}

// askedNames are the accounts that the row says something of, by name.
func askedNames(of map[string]Asked) []string {
	// "":[,], and two numbers of up to 16 digits
	names := fitting(slices.Sorted(maps.Keys(of)), 40)
	return slices.DeleteFunc(names, func(name string) bool { return of[name] == Asked{} })
}

// Kinds counts a member's requests by kind, over all accounts, and for each account if known. They
// are missing if the row is damaged there.
func (m *Member) Kinds() (all OpCounts, each map[string]OpCounts, known bool) {
	counted := UnpackOps(m.Operations)
	if len(counted) == 0 {
		return all, nil, false
	}
	names := slices.Sorted(maps.Keys(m.Asked))
	if len(counted) != 1+len(names) { // not of these accounts
		return counted[0], nil, true
	}
	each = make(map[string]OpCounts, len(names))
	for i, name := range names {
		each[name] = counted[1+i]
	}
	return counted[0], each, true
}

// withoutAccounts is a member's counts by kind without those of each account.
func withoutAccounts(packed []byte) []byte {
	counted := UnpackOps(packed)
	if len(counted) == 0 {
		return nil
	}
	return PackOps(counted[:1])
}

// DayKind is a kind of requests of a day. An empty Operation is for requests of unknown kind:
// members do not always have room to say it.
type DayKind struct{ Service, Operation string }

// DayCount is how many requests of a kind all processes have made on a day, and how many a second
// lately; nil: not known.
type DayCount struct {
	Requests uint64
	Rate     *float64
}

// encodeDayKinds stores by name, so that a reader knows kinds of a newer program.
func encodeDayKinds(of map[DayKind]DayCount) string {
	kept := map[string][]float64{}
	for k, n := range of {
		numbers := []float64{float64(min(n.Requests, maxAsked))}
		if n.Rate != nil {
			numbers = append(numbers, row.Finite(*n.Rate))
		}
		kept[k.Service+" "+k.Operation] = numbers
	}
	text, _ := json.Marshal(kept) // keys in order; finite numbers only
	return string(text)
}

// decodeDayKinds gives nil for what is missing, or not as this program would write it: the rest of
// the row is good without it.
func decodeDayKinds(f *row.Fields) map[DayKind]DayCount {
	text, _ := f.Props["DayOperations"].(string)
	var kept map[string][]float64
	if text == "" || json.Unmarshal([]byte(text), &kept) != nil || len(kept) > maxDayCounts {
		return nil
	}
	of := make(map[DayKind]DayCount, len(kept))
	for name, numbers := range kept {
		service, operation, _ := strings.Cut(name, " ")
		if service != QueueService && service != TableService {
			continue // of a newer program; not priced here
		}
		if len(name) > maxDayKind || !lowercase(operation) || len(numbers) == 0 || numbers[0] < 0 ||
			numbers[0] > maxAsked {
			return nil
		}
		n := DayCount{Requests: uint64(numbers[0])}
		if len(numbers) > 1 {
			if n.Rate = &numbers[1]; *n.Rate < 0 || *n.Rate > row.MaxDemand {
				return nil
			}
		}
		of[DayKind{service, operation}] = n
	}
	return of
}

func lowercase(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLower(r) && r != '-' })
}
