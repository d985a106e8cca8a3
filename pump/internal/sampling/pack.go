package sampling

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// The columns of bytes are what [row.Pack] makes: Point holds a [Point]; Operations the day's
// requests by kind (over all accounts, and then of each account of Point); Marks how many requests
// of queues and of tables each process had asked, and how many minutes ago it was seen.
const (
	maxPoint = 60 << 10 // bytes, of 64 KiB that a property may have
	maxText  = 1 << 20  // bytes of JSON in a column
	maxName  = 100      // bytes of an account's name, or of a currency
	maxCount = cluster.MostOps

	kindsColumn = "Operations" // the day's requests by kind

	markPart  = 60 << 10
	markParts = 4
	// maxMarks is as many rows as a view of the cluster may have. With a billion requests of queues
	// each they take 215 of the 240 KiB of four columns.
	maxMarks = 10_000
	// maxMinute is the year 9999, as far as a table keeps time.
	maxMinute = 253_402_300_799 / 60
)

func hash(s string) uint64 { return xxhash.Sum64String(s) }

// each visits all numbers of a point but those by kind.
func (p *HistoryPoint) each(amount func(*float64), count func(*uint64)) {
	for _, x := range []*float64{&p.Tasks, &p.Done, &p.Waiting, &p.Cost, &p.DayCost} {
		amount(x)
	}
	for i := range p.Accounts {
		a := &p.Accounts[i]
		for _, x := range []*float64{&a.Asked, &a.Limit, &a.Oldest, &a.Cost} {
			amount(x)
		}
		for _, n := range []*uint64{
			&a.Throttled, &a.Messages, &a.Visible, &a.InFlight, &a.Delayed, &a.Quarantined,
			&a.Requests.Queue, &a.Requests.Table, &a.Day.Queue, &a.Day.Table,
		} {
			count(n)
		}
	}
}

// encode gives the columns Point and Operations. It never fails: the last accounts that do not fit
// are added up.
func (p HistoryPoint) encode() (packed, kinds []byte) {
	if len(p.Currency) > maxName {
		p.Currency = ""
	}
	all := p.Accounts
	for most := MaxAccounts; packed == nil || len(packed) > maxPoint; most -= 1 + most/8 {
		p.Accounts = bounded(all, most)
		p.each(func(x *float64) { *x = row.Finite(*x) }, func(n *uint64) { *n = min(*n, maxCount) })
		packed = row.Pack(p)
	}
	counts := []cluster.OpCounts{p.DayKinds}
	for _, a := range p.Accounts {
		counts = append(counts, a.DayKinds)
	}
	return packed, cluster.PackOps(counts)
}

// bounded gives at most so many accounts, by name: accounts without room for their name, or beyond
// the bound, become one account without a name.
func bounded(of []HistoryAccount, most int) []HistoryAccount {
	accounts := slices.Clone(of)
	slices.SortStableFunc(accounts, func(a, b HistoryAccount) int {
		return compareNames(a.Name, b.Name)
	})
	kept := []HistoryAccount{}
	rest, any := HistoryAccount{Sampled: true}, false
	for _, a := range accounts {
		if a.Name != "" && len(a.Name) <= maxName && len(kept) < most-1 {
			kept = append(kept, a)
			continue
		}
		any = true
		rest.Asked, rest.Limit, rest.Cost = rest.Asked+a.Asked, rest.Limit+a.Limit, rest.Cost+a.Cost
		rest.Oldest = max(rest.Oldest, a.Oldest)
		rest.Throttled, rest.Visible = rest.Throttled+a.Throttled, rest.Visible+a.Visible
		rest.InFlight, rest.Quarantined = rest.InFlight+a.InFlight, rest.Quarantined+a.Quarantined
		rest.Sampled = rest.Sampled && a.Sampled // else it is partial
		rest.Delayed, rest.Messages = rest.Delayed+a.Delayed, rest.Messages+a.Messages
		rest.Requests, rest.Day = rest.Requests.Add(a.Requests), rest.Day.Add(a.Day)
		rest.DayKinds = rest.DayKinds.Add(a.DayKinds)
	}
	if any {
		kept = append(kept, rest)
	}
	return kept
}

// compareNames sorts the rest, which has no name, behind all others.
func compareNames(a, b string) int {
	if (a == "") != (b == "") {
		return map[bool]int{true: 1, false: -1}[a == ""]
	}
	return strings.Compare(a, b)
}

// decodePoint reads the columns of a row but its marks.
func decodePoint(f *row.Fields) (p HistoryPoint) {
	minute, packed := f.UpTo("Minute", maxMinute), f.Binary("Point")
	if f.Err != nil {
		return HistoryPoint{}
	}
	if err := p.decode(packed); err != nil {
		f.Fail("Point", err.Error())
		return HistoryPoint{}
	}
	p.Time = time.Unix(60*int64(minute), 0).UTC()
	if packed, is := f.Props[kindsColumn].([]byte); is {
		p.decodeKinds(packed)
	}
	return p
}

func (p *HistoryPoint) decode(packed []byte) error {
	if err := row.Unpack(packed, maxText, p); err != nil {
		return err
	}
	var wrong error
	p.each(func(x *float64) {
		if !(*x >= 0 && *x <= row.MaxDemand) {
			wrong = fmt.Errorf("has the number %v", *x)
		}
	}, func(n *uint64) {
		if *n > maxCount {
			wrong = fmt.Errorf("has the count %d", *n)
		}
	})
	for i, a := range p.Accounts {
		if i > 0 && compareNames(p.Accounts[i-1].Name, a.Name) >= 0 || len(a.Name) > maxName {
			wrong = fmt.Errorf("has account %q in place %d", row.Clip(a.Name), i)
		}
	}
	if len(p.Accounts) > MaxAccounts || len(p.Currency) > maxName {
		wrong = fmt.Errorf("has %d accounts, and the currency %q", len(p.Accounts), row.Clip(p.Currency))
	}
	return wrong
}

// decodeKinds takes all or nothing: what is not as this program writes it is not known.
func (p *HistoryPoint) decodeKinds(packed []byte) {
	counts := cluster.UnpackOps(packed)
	if len(counts) != 1+len(p.Accounts) {
		return
	}
	p.DayKinds = counts[0]
	for i := range p.Accounts {
		p.Accounts[i].DayKinds = counts[1+i]
	}
}

// put never fails: if not all members fit, those seen longest ago are left out.
func (m Marks) put(props map[string]any) {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(m[a].Ago, m[b].Ago), cmp.Compare(a, b))
	})
	var packed []byte
	for n := min(len(keys), maxMarks); packed == nil || len(packed) > markPart*markParts; n -= n / 8 {
		kept := make(map[uint64][3]uint64, n)
		for _, key := range keys[:n] {
			mark := m[key]
			kept[key] = [...]uint64{mark.Queue, mark.Table, uint64(mark.Ago / time.Minute)}
		}
		packed = row.Pack(kept)
	}
	row.PutParts(props, "Marks", markPart, packed)
}

func decodeMarks(f *row.Fields) Marks {
	var kept map[uint64][3]uint64
	packed := f.Parts("Marks", markParts)
	if f.Err == nil && packed != nil {
		if err := row.Unpack(packed, maxText, &kept); err != nil {
			f.Fail("Marks", err.Error())
		}
	}
	m := Marks{}
	for key, n := range kept {
		if max(n[0], n[1]) > maxCount || len(kept) > maxMarks {
			f.Fail("Marks", "has too many members or requests")
		}
		ago := time.Duration(min(n[2], math.MaxUint8)) * time.Minute
		m[key] = Mark{Requests{n[0], n[1]}, ago}
	}
	if f.Err != nil {
		return nil
	}
	return m
}
