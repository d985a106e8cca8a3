package sampling

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// What a process asked is damage where no process can have asked so much.
func TestMarksAreReadAsTheyWereWritten(t *testing.T) {
	props := map[string]any{}
	want := Marks{1: {Requests{2, maxCount}, 5 * time.Minute}, math.MaxUint64: {Requests{4, 5}, 255 * time.Minute}}
	want.put(props)
	many := map[uint64][3]uint64{}
	for n := range uint64(maxMarks + 1) {
		many[n] = [3]uint64{n, n, n}
	}
	good := props["Marks"].([]byte)
	for what, c := range map[string]struct {
		packed any
		want   Marks
	}{
		"as written": {good, want}, "none": {nil, Marks{}}, "of no process": {row.Pack(struct{}{}), Marks{}},
		"seen long ago": {row.Pack(map[uint64][]uint64{7: {1, 2, 1 << 60}}), Marks{7: {Requests{1, 2}, 255 * time.Minute}}},
		"cut":           {good[:len(good)-1], nil}, "not packed": {[]byte(`{"1":[2,3,4]}`), nil}, "too many": {row.Pack(many), nil},
		"too much": {row.Pack(map[uint64][]uint64{7: {1, maxCount + 1, 0}}), nil}, "a text": {row.Pack("marks"), nil},
		"a bomb": {row.Pack(strings.Repeat(" ", 64<<20)), nil}, "less than nothing": {row.Pack(map[uint64][]int{7: {-1}}), nil},
	} {
		f := &row.Fields{Props: map[string]any{}}
		if c.packed != nil {
			f.Props["Marks"] = c.packed
		}
		proof.AtMost(t, 12<<20, func() { same(t, what, decodeMarks(f), c.want) })
		proof.Same(t, (f.Err != nil), (c.want == nil), what, f.Err)
	}
}

// A property of a table has room for 64 KiB. All accounts and processes of the largest workload fit,
// with numbers that compress as badly as any. Of accounts with absurd names, or processes that asked
// for ages, as many as fit.
func TestTheLargestRowFits(t *testing.T) {
	for what, c := range map[string]struct {
		letters string
		name    int
		asked   uint64
		all     bool
	}{
		"names as Azure has them": {"abcdefghijklmnopqrstuvwxyz0123456789", 24, 1e9, true},
		"names of anything":       {"<>&\"\\ÄÖÜäöü\u0001\u0002!$%()=?abcdefghijklmno0123456789", maxName, maxCount, false},
	} {
		rnd := rand.New(rand.NewPCG(1, 2))
		p, marks, props := HistoryPoint{Tasks: rnd.Float64(), Currency: "USD"}, Marks{}, map[string]any{}
		for range MaxAccounts {
			name, letters := "", []rune(c.letters)
			for len(name) < c.name-1 {
				name += string(letters[rnd.IntN(len(letters))])
			}
			a := HistoryAccount{Name: name}
			for k := range a.DayKinds {
				a.DayKinds[k] = rnd.Uint64N(maxCount)
			}
			p.Accounts = append(p.Accounts, a)
		}
		p.each(func(x *float64) { *x = 1e5 * rnd.Float64() }, func(n *uint64) { *n = rnd.Uint64N(maxCount) })
		for range maxMarks {
			marks[rnd.Uint64()] = Mark{Requests{rnd.Uint64N(c.asked), rnd.Uint64N(c.asked / 10)}, time.Duration(rnd.IntN(30)) * time.Minute}
		}
		props["Point"], props[kindsColumn] = p.encode()
		marks.put(props)
		for name, value := range props {
			t.Logf("%s: %s has %d bytes", what, name, len(value.([]byte)))
			if len(value.([]byte)) > 64<<10 {
				t.Errorf("%s: %s has %d bytes", what, name, len(value.([]byte)))
			}
		}
		f := &row.Fields{Props: props}
		m := decodeMarks(f)
		props["Minute"] = int64(7)
		got := decodePoint(f)
		if f.Err != nil || len(props) > 3+markParts || len(got.Accounts) < MaxAccounts/2 || len(m) < maxMarks/2 {
			t.Fatalf("%s: %d accounts, %d marks in %d columns, %v", what, len(got.Accounts), len(m), len(props), f.Err)
		}
		t.Logf("%s: %d accounts, %d marks", what, len(got.Accounts), len(m))
		if c.all {
			same(t, what, got.Accounts, bounded(p.Accounts, MaxAccounts))
			same(t, what, m, marks)
		}
	}
}

// A point that this program would not write is damage.
func TestAPointThatNobodyWroteIsDamaged(t *testing.T) {
	good := `{"tasksPerSecond":1,"accounts":[{"name":"a"},{"name":"b"}]}`
	long := strings.Repeat("x", maxName+1)
	for _, change := range [][2]string{
		{`:1,`, `:-1,`},
		{`:1,`, `:1e300,`},
		{`:1,`, `:"1",`},
		{`"a"`, `"b"`},
		{`"a"`, `"c"`},
		{`"a"`, `""`},
		{`"b"`, `"` + long + `"`},
		{`"b"`, `"b","messages":9007199254740993`},
		{`"b"`, `"b","messages":-1`},
		{`"b"`, `"b","day":{"queue":9007199254740993}`},
		{`{"tasks`, `{"currency":"` + long + `","tasks`},
		{`]`, strings.Repeat(`,{"name":""}`, MaxAccounts) + `]`},
		{`]}`, `]`},
	} {
		var p HistoryPoint
		must(t, p.decode(row.Pack(json.RawMessage(good))))
		packed := row.Pack(json.RawMessage(strings.Replace(good, change[0], change[1], 1)))
		if p = (HistoryPoint{}); p.decode(packed) == nil {
			t.Errorf("%s instead of %s is taken", change[1], change[0])
		}
	}
}

// A value that is not a number is stored as none.
func TestNumbersThatAreNoneAreZero(t *testing.T) {
	p := HistoryPoint{Tasks: math.NaN(), Waiting: math.Inf(1), Cost: -1, Accounts: []HistoryAccount{}}
	var got HistoryPoint
	packed, _ := p.encode()
	must(t, got.decode(packed))
	same(t, "the point", got, HistoryPoint{Waiting: row.MaxDemand, Accounts: []HistoryAccount{}})
}

// The rest of many accounts is known if all of it is.
func TestASumOfUnknownsIsUnknown(t *testing.T) {
	for n, want := range map[int]bool{MaxAccounts: false, MaxAccounts - 2: true} {
		p := example(time.Now(), 2*MaxAccounts)
		for i := range p.Accounts {
			p.Accounts[i].Sampled = i != n
		}
		var got HistoryPoint
		packed, _ := p.encode()
		must(t, got.decode(packed))
		rest := got.Accounts[len(got.Accounts)-1]
		if rest.Name != "" || rest.Sampled != want || rest.Delayed != 9*uint64(MaxAccounts+1) {
			t.Errorf("account %d of %d is not known: %+v", n, len(p.Accounts), rest)
		}
	}
}
