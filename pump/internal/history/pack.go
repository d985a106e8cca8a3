package history

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/internal/operations"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// The columns of bytes. Point is a sequence of records: that of the workload, then one for each
// account. A record is its length as a varint, then its fields; a reader passes over what stands
// behind the fields that it knows. Marks is a sequence of 8 bytes and two varints, and Ages has a
// byte for each: how many minutes ago the member was seen; it is left out if all are 0.
// Operations is [operations.Counts], one behind the other.
const (
	maxPoint = 60 << 10 // bytes, of 64 KiB that a property may have
	maxName  = 100      // bytes of an account's name, or of a currency
	maxCount = 1 << 53  // of requests or messages: a thousand a second for 285,000 years

	// kindsColumn has the day's requests by kind. Its first byte is kindsForm; what follows another
	// one is not known to this program.
	kindsColumn = "Operations"
	kindsForm   = 1

	markPart  = 60 << 10
	markParts = 4
	// maxMarks is as many rows as a view of the cluster may have; 24 bytes each fill four columns.
	maxMarks = 10_000
	// maxMinute is the year 9999, as far as a table keeps time.
	maxMinute = 253_402_300_799 / 60
)

func hash(s string) uint64 { return xxhash.Sum64String(s) }

// packer appends fields.
type packer []byte

func (b *packer) count(n uint64) { *b = binary.AppendUvarint(*b, min(n, maxCount)) }
func (b *packer) number(x float64) {
	*b = binary.LittleEndian.AppendUint64(*b, math.Float64bits(row.Finite(x)))
}

// rough is a number of which seven digits are enough.
func (b *packer) rough(x float64) {
	*b = binary.LittleEndian.AppendUint32(*b, math.Float32bits(float32(row.Finite(x))))
}

func (b *packer) text(s string) {
	if len(s) > maxName {
		s = ""
	}
	b.count(uint64(len(s)))
	*b = append(*b, s...)
}

func (b *packer) requests(r Requests) {
	b.count(r.Queue)
	b.count(r.Table)
}

func (b *packer) flag(is bool) {
	n := uint64(0)
	if is {
		n = 1
	}
	b.count(n)
}

func (b *packer) record(of packer) {
	b.count(uint64(len(of)))
	*b = append(*b, of...)
}

// encode never fails: of more accounts than fit the last are added up.
func (p Point) encode() []byte {
	var all, head packer
	head.rough(p.Tasks)
	head.rough(p.Done)
	head.rough(p.Waiting)
	head.number(p.Cost)
	head.number(p.DayCost)
	head.text(p.Currency)
	head.flag(p.Sampled)
	all.record(head)
	for _, a := range bounded(p.Accounts) {
		var one packer
		one.text(a.Name)
		one.rough(a.Asked)
		one.rough(a.Limit)
		one.rough(a.Oldest)
		one.number(a.Cost)
		for _, n := range []uint64{a.Throttled, a.Visible, a.InFlight, a.Quarantined} {
			one.count(n)
		}
		one.requests(a.Requests)
		one.requests(a.Day)
		one.flag(a.Sampled)
		one.count(a.Delayed)
		one.count(a.Messages)
		all.record(one)
	}
	return all
}

// bounded gives at most [MaxAccounts] accounts, by name: those without room for their name, or
// beyond the bound, are one without a name.
func bounded(of []Account) []Account {
	accounts := slices.Clone(of)
	slices.SortStableFunc(accounts, func(a, b Account) int { return compareNames(a.Name, b.Name) })
	var kept []Account
	rest, any := Account{Sampled: true}, false
	for _, a := range accounts {
		if a.Name != "" && len(a.Name) <= maxName && len(kept) < MaxAccounts-1 {
			kept = append(kept, a)
			continue
		}
		any = true
		rest.Asked, rest.Limit, rest.Cost = rest.Asked+a.Asked, rest.Limit+a.Limit, rest.Cost+a.Cost
		rest.Oldest = max(rest.Oldest, a.Oldest)
		rest.Throttled, rest.Visible = rest.Throttled+a.Throttled, rest.Visible+a.Visible
		rest.InFlight, rest.Quarantined = rest.InFlight+a.InFlight, rest.Quarantined+a.Quarantined
		rest.Sampled = rest.Sampled && a.Sampled // else it is a part
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

var errShort = errors.New("ends too early")

// unpacker takes fields. After the first error all is zero.
type unpacker struct {
	rest []byte
	err  error
}

func (u *unpacker) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fmt.Errorf(format, args...)
	}
	u.rest = nil
}

func (u *unpacker) take(n int) []byte {
	if u.err != nil || n > len(u.rest) {
		u.fail("%w", errShort)
		return nil
	}
	part := u.rest[:n]
	u.rest = u.rest[n:]
	return part
}

func (u *unpacker) count() uint64 {
	n, size := binary.Uvarint(u.rest)
	if u.err != nil || size <= 0 {
		u.fail("%w", errShort)
		return 0
	}
	if n > maxCount {
		u.fail("has the count %d", n)
		return 0
	}
	u.rest = u.rest[size:]
	return n
}

func (u *unpacker) upTo(most int) int {
	n := u.count()
	if n > uint64(most) {
		u.fail("has a length of %d", n)
		return 0
	}
	return int(n)
}

func (u *unpacker) amount(x float64) float64 {
	if !(x >= 0 && x <= row.MaxDemand) { // so written that NaN fails too
		u.fail("has the number %v", x)
		return 0
	}
	return x
}

func (u *unpacker) number() float64 {
	b := u.take(8)
	if b == nil {
		return 0
	}
	return u.amount(math.Float64frombits(binary.LittleEndian.Uint64(b)))
}

func (u *unpacker) rough() float64 {
	b := u.take(4)
	if b == nil {
		return 0
	}
	return u.amount(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
}

func (u *unpacker) text() string { return string(u.take(u.upTo(maxName))) }

func (u *unpacker) requests() Requests { return Requests{u.count(), u.count()} }

func (u *unpacker) flag() bool { return u.upTo(1) == 1 }

func (u *unpacker) record() *unpacker {
	return &unpacker{rest: u.take(u.upTo(maxPoint)), err: u.err}
}

// decodePoint reads the columns of a row but its marks.
func decodePoint(f *row.Fields) Point {
	p := Point{Time: time.Unix(60*int64(f.UpTo("Minute", maxMinute)), 0).UTC()}
	packed := f.Binary("Point")
	if f.Err != nil {
		return Point{}
	}
	if len(packed) > maxPoint {
		f.Fail("Point", fmt.Sprintf("has %d bytes", len(packed)))
		return Point{}
	}
	if err := p.decode(packed); err != nil {
		f.Fail("Point", err.Error())
		return Point{}
	}
	if packed, is := f.Props[kindsColumn].([]byte); is {
		p.decodeKinds(packed)
	}
	return p
}

// encodeKinds packs the day's requests by kind: over all accounts, then of each account of Point,
// in its order. With 250 accounts that is 6 KiB on a busy day, and 23 at most.
func (p Point) encodeKinds() []byte {
	packed := p.DayKinds.Append([]byte{kindsForm})
	for _, a := range bounded(p.Accounts) {
		packed = a.DayKinds.Append(packed)
	}
	return packed
}

// decodeKinds takes all or nothing: what is not as this program writes it is not known.
func (p *Point) decodeKinds(packed []byte) {
	if len(packed) == 0 || packed[0] != kindsForm {
		return
	}
	all, rest, ok := operations.Take(packed[1:])
	each := make([]operations.Counts, len(p.Accounts))
	for i := range each {
		if ok {
			each[i], rest, ok = operations.Take(rest)
		}
	}
	if !ok || len(rest) > 0 {
		return
	}
	p.DayKinds = all
	for i := range each {
		p.Accounts[i].DayKinds = each[i]
	}
}

func (p *Point) decode(packed []byte) error {
	all := &unpacker{rest: packed}
	head := all.record()
	p.Tasks, p.Done, p.Waiting = head.rough(), head.rough(), head.rough()
	p.Cost, p.DayCost = head.number(), head.number()
	p.Currency, p.Sampled = head.text(), head.flag()
	if head.err != nil {
		return head.err
	}
	p.Accounts = []Account{}
	for len(all.rest) > 0 {
		if len(p.Accounts) == MaxAccounts {
			return fmt.Errorf("has more than %d accounts", MaxAccounts)
		}
		one := all.record()
		a := Account{
			Name: one.text(), Asked: one.rough(), Limit: one.rough(), Oldest: one.rough(),
			Cost: one.number(),
		}
		for _, n := range []*uint64{&a.Throttled, &a.Visible, &a.InFlight, &a.Quarantined} {
			*n = one.count()
		}
		a.Requests, a.Day = one.requests(), one.requests()
		a.Sampled, a.Delayed, a.Messages = one.flag(), one.count(), one.count()
		if one.err != nil {
			return one.err
		}
		if n := len(p.Accounts); n > 0 && compareNames(p.Accounts[n-1].Name, a.Name) >= 0 {
			return fmt.Errorf("has account %q after %q", row.Clip(a.Name), row.Clip(p.Accounts[n-1].Name))
		}
		p.Accounts = append(p.Accounts, a)
	}
	return all.err
}

// put never fails: of more members than there may be those are left out that were seen longest ago.
func (m Marks) put(props map[string]any) {
	var all, ages packer
	keys := slices.SortedFunc(maps.Keys(m), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(m[a].Ago, m[b].Ago), cmp.Compare(a, b))
	})
	for _, key := range keys[:min(len(keys), maxMarks)] {
		var one packer
		one = binary.LittleEndian.AppendUint64(one, key)
		one.requests(m[key].Requests)
		if len(all)+len(one) > markPart*markParts {
			break
		}
		all, ages = append(all, one...), append(ages, byte(min(m[key].Ago/time.Minute, math.MaxUint8)))
	}
	row.PutParts(props, "Marks", markPart, all)
	if n := len(ages); n > 0 && ages[n-1] > 0 { // the last is the greatest
		props["Ages"] = []byte(ages)
	}
}

func decodeMarks(f *row.Fields) Marks {
	u, ages := &unpacker{rest: f.Parts("Marks", markParts)}, f.Binary("Ages")
	if len(u.rest) > markPart*markParts+4*(4<<10) {
		f.Fail("Marks", fmt.Sprintf("has %d bytes", len(u.rest)))
	}
	m, n := Marks{}, 0
	for ; f.Err == nil && len(u.rest) > 0; n++ {
		var key uint64
		if b := u.take(8); b != nil {
			key = binary.LittleEndian.Uint64(b)
		}
		mark := Mark{Requests: u.requests()}
		if n < len(ages) {
			mark.Ago = time.Duration(ages[n]) * time.Minute
		}
		m[key] = mark
		if u.err != nil {
			f.Fail("Marks", u.err.Error())
		}
		if len(m) > maxMarks {
			f.Fail("Marks", "has too many members")
		}
	}
	if len(ages) > 0 && len(ages) != n {
		f.Fail("Ages", fmt.Sprintf("has %d bytes for %d marks", len(ages), n))
	}
	if f.Err != nil {
		return nil
	}
	return m
}
