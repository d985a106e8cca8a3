package cluster

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// busyCounts are what a processor has asked of so many accounts on a busy day.
func busyCounts(rnd *rand.Rand, accounts int) map[string]OpCounts {
	of := map[string]OpCounts{}
	for i := range accounts {
		n := uint64(5_000_000 + rnd.IntN(5_000_000))
		of[fmt.Sprintf("storageaccountnumber%04d", i)] = OpCounts{
			OpPut: n / 1000, OpGet: n, OpRenew: n / 7, OpReplace: n / 5000,
			OpDelete: n - uint64(rnd.IntN(1000)), OpCreate: 10, OpCount: n / 50, OpPeek: n / 90,
		}
	}
	of["storageaccountnumber0000"] = OpCounts{
		OpRead: 40_000, OpWrite: 20_000, OpQuery: 17_280,
	}
	return of
}

func busyMember(rnd *rand.Rand, name string, accounts int) memberRow {
	m := someMember()
	m.Instance, m.Host, m.Admin, m.Demand = name, "host-"+name, "10.0.0."+name+":9090", map[string]float64{}
	m.Throttles, m.Held, m.Later, m.Accounts = map[string]uint64{}, map[string]float64{}, map[string]float64{}, nil
	counts := busyCounts(rnd, accounts)
	m.Asked, m.Operations = AskedOf(counts)
	m.AskedSince = m.Started
	for name := range counts {
		m.Accounts = append(m.Accounts, name)
		m.Demand[name], m.Held[name] = 20*rnd.Float64(), float64(rnd.IntN(100))
	}
	return m
}

// musterSize is how many bytes a muster of so many members takes; 0: it is too large.
func musterSize(members, accounts int, change func(m *memberRow)) (size int, props map[string]any) {
	rnd := rand.New(rand.NewPCG(1, 2))
	m := &muster{Incarnation: "0123456789abcdef"}
	for i := range members {
		r := busyMember(rnd, fmt.Sprintf("m%04d", i), accounts)
		change(&r)
		m.Members = append(m.Members, musterMember{r.Instance, copyOf(storage.Entity{
			ETag: storage.ETag(fmt.Sprint(rnd.Uint64())), Modified: time.Now(), Properties: encodeMember(r),
		})})
	}
	props = encodeMuster(m)
	for _, value := range props {
		if b, is := value.([]byte); is {
			size += len(b)
		}
	}
	return size, props
}

func decoded(t *testing.T, m memberRow) Member {
	t.Helper()
	got, err := decodeRow(encodeMember(m), func(f *row.Fields) memberRow { return decodeMember(f, m.Instance) })
	must(t, err)
	return got.Member
}

func TestABeatSaysWhatWasAskedByAccountAndKind(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for accounts, byAccount := range map[int]bool{1: true, 8: true, 70: true, 250: false} {
		counts := busyCounts(rnd, accounts)
		m := busyMember(rnd, "a", accounts)
		m.Asked, m.Operations = AskedOf(counts)
		got := decoded(t, m)
		all, each, known := got.Kinds()
		want := OpCounts{}
		for name, n := range counts {
			want = want.Add(n)
			a := Asked{n.Of(QueueService), n.Of(TableService)}
			proof.Same(t, got.Asked[name], a, accounts, "accounts", name)
		}
		if !known || all != want {
			t.Errorf("%d accounts: %v, %v, want %v", accounts, known, all, want)
		}
		if byAccount && !reflect.DeepEqual(each, counts) || !byAccount && each != nil {
			t.Errorf("%d accounts: by account %v", accounts, each)
		}
		if n := len(m.Operations); n > maxOperations {
			t.Errorf("%d accounts: %d bytes", accounts, n)
		}
		t.Logf("%d accounts: %d bytes, beside %d of Asked", accounts, len(m.Operations), len(encodeAsked(m.Asked)))
	}
}

// What a member says by kind is no reason not to read its row: it may be of a newer
// program, or damaged.
func TestAMemberThatDoesNotSayKindsIsReadAsBefore(t *testing.T) {
	m := busyMember(rand.New(rand.NewPCG(1, 2)), "a", 3)
	for what, value := range map[string]any{
		"no column": nil, "a newer form": []byte{2, 1, 1}, "another type": "text", "nothing": []byte{},
		"cut": m.Operations[:2], "endless": []byte{1, 255, 255},
	} {
		props := encodeMember(m)
		if props["Operations"] = value; value == nil {
			delete(props, "Operations")
		}
		got, err := decodeRow(props, func(f *row.Fields) memberRow { return decodeMember(f, "a") })
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if all, each, known := got.Kinds(); known || each != nil || all != (OpCounts{}) ||
			len(got.Asked) != 3 {
			t.Errorf("%s: %v, %v, %v", what, all, each, known)
		}
	}
	counted := UnpackOps(m.Operations)
	for what, packed := range map[string][]byte{
		"without the last account": PackOps(counted[:3]),
		"with one more":            PackOps(append(counted, OpCounts{})),
		"without accounts":         withoutAccounts(m.Operations),
	} {
		of := m
		of.Operations = packed
		if all, each, known := of.Kinds(); !known || each != nil ||
			all.Of(TableService) != 77_280 {
			t.Errorf("%s: %v, %v, %v", what, all, each, known)
		}
	}
}

// What cannot be read of the day's kinds is not known, and the rest of the row is.
func TestTheDaysKindsAreReadAsTheyWereWritten(t *testing.T) {
	m := someMember()
	m.Day = &Day{Number: 20_000, Cost: 1, Kinds: map[DayKind]DayCount{
		{QueueService, "get"}: {
			1 << 52,
			new(0.25),
		}, {TableService, "read"}: {3, nil}, {QueueService, ""}: {9, new(0.0)},
		{QueueService, "of-later"}: {1, new(1.0)},
	}}
	if got := decoded(t, m); !reflect.DeepEqual(got.Day, m.Day) {
		t.Errorf("%+v, want %+v", got.Day, m.Day)
	}
	for text, want := range map[string]map[DayKind]DayCount{
		`{"blob put":[1],"queue put":[2]}`: {{QueueService, "put"}: {2, nil}}, // a service of later
		`{"queue put":[-1]}`:               nil,
		`{"queue put":[]}`:                 nil,
		`{"queue put":[1,-1]}`:             nil,
		`{"queue <b>":[1]}`:                nil,
		`[1]`:                              nil,
		`{`:                                nil,
	} {
		props := encodeMember(m)
		props["DayOperations"] = text
		got, err := decodeRow(props, func(f *row.Fields) memberRow { return decodeMember(f, "a") })
		if err != nil || !reflect.DeepEqual(got.Day.Kinds, want) || got.Day.Cost != 1 {
			t.Errorf("%s: %v, %+v", text, err, got.Day)
		}
	}
}

// Musters have least room. What members say by account and kind does not make one too large that is
// not without it: then it has the kinds over all accounts.
func TestKindsMakeNoMusterTooLarge(t *testing.T) {
	without := func(m *memberRow) { m.Operations = nil }
	with := func(*memberRow) {}
	for _, c := range []struct{ members, accounts int }{{1000, 8}, {300, 60}} {
		small, _ := musterSize(c.members, c.accounts, without)
		size, props := musterSize(c.members, c.accounts, with)
		t.Logf("%d members, %d accounts: %d KiB, without kinds %d", c.members, c.accounts, size>>10, small>>10)
		if size == 0 || size > musterPart*musterParts {
			t.Fatalf("%d members with %d accounts: a muster of %d bytes, without kinds %d", c.members, c.accounts, size, small)
		}
		m := decodeMuster(&row.Fields{Props: props})
		e := m.Members[7].entity("work", "present.m0007")
		got, err := decodeRow(e.Properties, func(f *row.Fields) memberRow { return decodeMember(f, "m0007") })
		must(t, err)
		if _, each, known := got.Kinds(); !known || (each != nil) != (c.accounts == 8) {
			t.Errorf("%d members, %d accounts: %v, of %d accounts", c.members, c.accounts, known, len(each))
		}
	}
}
