package cluster

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Role is which half of the pump a member is.
type Role string

// The roles. Only processors own segments.
const (
	RoleProcessor   Role = "processor"
	RoleDistributor Role = "distributor"
)

// Bounds of what a member row says. A longer text of a member about itself is cut.
const (
	maxAccounts = 1024   // names; of 24 bytes 960 fit maxNames, and 440 with their demand
	maxNames    = 24_000 // bytes of a list of accounts, which as UTF-16 must fit 64 KiB
)

// Report is what a member says of itself in each beat, besides what it holds.
type Report struct {
	// Admin is the host:port of its admin port as others reach it; empty: none.
	Admin string
	// Waiting is the gate that it waits at; while it does it is given no segments.
	Waiting string
	// Draining: it stops. It is given no segments and gives up those that it holds.
	Draining bool
	// Accounts are the accounts it has credentials for.
	Accounts []string
	// Cannot are those of the workload that it cannot read: they refuse it, are missing for it, or
	// have not answered it for long. Vouches are those that it can read and others cannot: because of
	// them the others are given no segment there.
	Cannot, Vouches []string
	// Reads is the newest envelope format it reads.
	Reads int
	// Demand is the requests a second it would make, by account.
	Demand map[string]float64
	// Guessed: that is not measured yet but what a process may need that has just come.
	Guessed bool
	// Tasks counts those handled, or sent, so far; Rate is how many a second lately.
	Tasks uint64
	Rate  float64
	// Seconds is how long a task takes in the handler, lately; 0: not known.
	Seconds float64
	// Pace is how many seconds one more task adds to the handling of an envelope, lately: a task's
	// time, divided by the number handled at once; 0: not known.
	Pace float64
	// Hides is how many seconds it hides the messages that it gets now; 0: it gets none, or does not
	// say.
	Hides float64
	// Unread is how many seconds messages may wait, visible and not delivered, in UnreadQueue, the
	// polled queue that it has read least far; 0: it does not say.
	Unread      float64
	UnreadQueue string
	// UnreadForeign is the same for the foreign queues that it polls, which Unread leaves out; 0: it
	// polls none, or does not say.
	UnreadForeign float64
	// ForeignPolled identifies those foreign queues: it is the sum of the hashes of their names. A
	// member that becomes the reader of another queue does not know it in its last beat.
	ForeignPolled uint64
	// Throttled counts the requests that were refused as too many, in all and by account, without
	// accounts at zero.
	Throttled uint64
	Throttles map[string]uint64
	// NotNow is how many times its tasks were told "not now" since that began at NotNowSince, and
	// NotNowError what the last task was told; zero if that is over.
	NotNow      uint64
	NotNowSince time.Time
	NotNowError string
	// KeysOver are the keys that are over their limits.
	KeysOver pump.KeysOver
	// Failing are tasks that failed while no more than that were done. Stuck are handlers that have
	// not returned for much longer than tasks take; AllStuck: all handlers are stuck.
	Failing, Stuck Ill
	AllStuck       bool
	// Queues is the number of queues it polls.
	Queues int
	// Paused: by the mark in the workload's row it starts nothing, and no handler is at work.
	Paused bool
	// Trouble is one line for people, or empty.
	Trouble string
	// Samples: it looks at all queues if it is the first member that would. The next three are for the
	// sampling member. By account, Held are the messages in its hands and Later those that it has put
	// back for later; Deletes is how many deletes it has sent.
	Samples     bool
	Held, Later map[string]float64
	Deletes     uint64
	// Asked is how many requests the process has made to each account since AskedSince, by its own
	// clock; others add up the workload's cost from it. A process that was evicted, or is a member now
	// and then, comes back with another incarnation and the same counts.
	Asked      map[string]Asked
	AskedSince time.Time
	// Operations are the same counts by the kind of requests, as [AskedOf] packs them: only a process
	// that adds up unpacks them (Kinds), and a newer program's do not make a row unreadable.
	Operations []byte
	// Spends is what its requests cost a second, lately, in its currency. Slower is by which factor it
	// leaves empty queues alone for longer, to keep to a day's cap; HoldsBack: that is not enough, so
	// gets wait. All are zero without a cap.
	Spends, Slower float64
	HoldsBack      bool
	// Own are the settings that it is given itself, and Settings tells which of the workload are in
	// force in it (workload.Settings.ID); empty: none.
	Own      []string
	Settings string
	// Day is what the sampling member knows of a UTC day's cost; nil if that is nothing, or another
	// member samples.
	Day *Day
}

// Ill says what is wrong with handlers: how often, since when by the member's clock, what the last
// error was, and a task. Zero: all is well.
type Ill struct {
	Count       uint64
	Since       time.Time
	Error, Task string
}

// Asked counts requests of the two services of an account.
type Asked struct{ Queue, Table uint64 }

// Day is what a UTC day has cost all processes together.
type Day struct {
	Number int64    // days since 1970
	Cost   float64  // up to this beat, as the member's configuration has the prices
	Rate   *float64 // a second, lately; nil: not known
	// Kinds are the day's requests by kind; nil: not known.
	Kinds map[DayKind]DayCount
}

// Member is a process that takes part in a workload, as its row says.
type Member struct {
	Instance, Incarnation, Host, Version string
	Role                                 Role
	Started                              time.Time // by its own clock, for people
	// Beat is when the row was last written, by the server's clock, for people.
	Beat time.Time
	// Every is the time between its beats. Dead is after how long without a beat the others take what
	// it owns: its lease and its margin.
	Every, Dead time.Duration
	// Holds are the segments that it held at its last beat.
	Holds SegmentSet
	Report
	// Err is not nil if the row cannot be read: damaged, or written by a newer program. Then only
	// Instance and Beat are known, and perhaps Every and Dead. Such a member lives as long as its row
	// changes; it keeps what it owns and is given nothing.
	Err error
}

// Silent reports whether its last beat had expired at a time of the server's clock. That is for
// people: members judge by what they observe themselves (P5.3). A row that does not tell its lease
// is never silent.
func (m *Member) Silent(now time.Time) bool { return m.Dead > 0 && now.Sub(m.Beat) > m.Dead }

// SegmentSet is a set of segments: segment s is bit s%8 of byte s/8, and zero
// bytes at the end are left out.
type SegmentSet []byte

// Has reports whether the set has the segment.
func (b SegmentSet) Has(segment uint32) bool {
	i := int(segment / 8)
	return i < len(b) && b[i]&(1<<(segment%8)) != 0
}

// Len is the number of segments in the set.
func (b SegmentSet) Len() int {
	n := 0
	for _, x := range b {
		n += bits.OnesCount8(x)
	}
	return n
}

// All yields the segments in ascending order.
func (b SegmentSet) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i, x := range b {
			for ; x != 0; x &= x - 1 {
				if !yield(uint32(i*8 + bits.TrailingZeros8(x))) {
					return
				}
			}
		}
	}
}

func (b SegmentSet) with(segment uint32) SegmentSet {
	for int(segment/8) >= len(b) {
		b = append(b, 0)
	}
	b[segment/8] |= 1 << (segment % 8)
	return b
}

// memberRow is the row's content.
type memberRow struct {
	Member
	Times   row.Times
	beats   uint64
	musters bool // it can write musters: it has read the cluster
}

func memberRowOf(
	t storage.Table, workload, instance string, timeout time.Duration,
) row.Row[memberRow] {
	return row.Row[memberRow]{
		Table: t, Partition: workload, Key: memberPrefix + instance, Timeout: timeout,
		Encode:  encodeMember,
		Decode:  func(f *row.Fields) memberRow { return decodeMember(f, instance) },
		Salvage: salvageMember,
	}
}

// salvageMember reads from an unreadable row how long a beat is good, because others judge by that:
// zero if the row does not say it as this program would.
func salvageMember(props map[string]any) memberRow {
	f := row.Fields{Props: props}
	t := row.Times{Beat: f.Duration("Beat"), Lease: f.Duration("Lease"), Margin: f.Duration("Margin")}
	if f.Err != nil || t.Check() != nil {
		return memberRow{}
	}
	return memberRow{Times: t}
}

// encodeMember never fails: what exceeds the bounds is partly left out.
func encodeMember(m memberRow) map[string]any {
	props := map[string]any{
		"Instance": m.Instance, "Incarnation": m.Incarnation, "Host": row.Clip(m.Host),
		"Version": row.Clip(m.Version), "Role": string(m.Role),
		// In nanoseconds.
		"Beat": int64(m.Times.Beat), "Lease": int64(m.Times.Lease), "Margin": int64(m.Times.Margin),
		"Beats": int64(m.beats),
		"Holds": []byte(m.Holds),
		"Admin": row.Clip(m.Admin), "Waiting": row.Clip(m.Waiting), "Draining": m.Draining,
		"Reads": int64(m.Reads), "Accounts": strings.Join(fitting(m.Accounts, 1), " "),
		"Demand": encodeAmounts(m.Demand), "Guessed": m.Guessed,
		"Throttles": encodeAmounts(amounts(m.Throttles)), "Tasks": row.Count63(m.Tasks),
		"Rate": row.Finite(m.Rate), "Seconds": row.Finite(m.Seconds), "Pace": row.Finite(m.Pace),
		"Hides": row.Finite(m.Hides), "Unread": row.Finite(m.Unread),
		"UnreadQueue": row.Clip(m.UnreadQueue), "Throttled": row.Count63(m.Throttled),
		"Queues": int64(m.Queues), "Trouble": row.Clip(m.Trouble), "Musters": m.musters,
	}
	if len(m.Cannot) > 0 {
		props["Cannot"] = strings.Join(fitting(boundedCannot(m.Cannot), 1), " ")
	}
	if len(m.Vouches) > 0 {
		props["Vouches"] = strings.Join(fitting(m.Vouches, 1), " ")
	}
	if m.UnreadForeign > 0 {
		props["UnreadForeign"] = row.Finite(m.UnreadForeign)
		props["ForeignPolled"] = int64(m.ForeignPolled)
	}
	if m.Samples || m.Held != nil {
		props["Samples"], props["Deletes"] = m.Samples, row.Count63(m.Deletes)
		props["Held"], props["Later"] = encodeAmounts(m.Held), encodeAmounts(m.Later)
	}
	if m.NotNow > 0 {
		props["NotNow"], props["NotNowError"] = row.Count63(m.NotNow), row.Clip(m.NotNowError)
		putMoment(props, "NotNowSince", m.NotNowSince)
	}
	if m.KeysOver.Keys > 0 {
		text, _ := json.Marshal(m.KeysOver) // finite numbers only
		props["KeysOver"] = string(text)
	}
	putIll(props, "Failing", m.Failing)
	putIll(props, "Stuck", m.Stuck)
	if m.AllStuck {
		props["AllStuck"] = true
	}
	if m.Paused {
		props["Paused"] = true
	}
	if len(m.Own) > 0 {
		props["Own"] = row.Clip(strings.Join(m.Own, " "))
	}
	if m.Settings != "" {
		props["Settings"] = m.Settings
	}
	if len(m.Asked) > 0 {
		props["Asked"] = encodeAsked(m.Asked)
		putMoment(props, "AskedSince", m.AskedSince)
		if len(m.Operations) > 0 {
			props["Operations"] = m.Operations
		}
	}
	if m.Slower > 0 {
		props["Spends"], props["Slower"], props["HoldsBack"] = row.Finite(m.Spends), row.Finite(m.Slower),
			m.HoldsBack
	}
	if d := m.Day; d != nil {
		props["Day"], props["DayCost"] = d.Number, row.Finite(d.Cost)
		if d.Rate != nil {
			props["DayRate"] = row.Finite(*d.Rate)
		}
		if d.Kinds != nil {
			props["DayOperations"] = encodeDayKinds(d.Kinds)
		}
	}
	putMoment(props, "Started", m.Started)
	return props
}

// illTexts are properties that musters leave out: only readers of the rows show them to people.
var illTexts = []string{
	"FailingError", "FailingTask", "StuckError", "StuckTask", "NotNowError", "KeysOver",
}

func putIll(props map[string]any, name string, of Ill) {
	if of.Count > 0 {
		props[name], props[name+"Error"] = row.Count63(of.Count), row.Clip(of.Error)
		props[name+"Task"] = row.Clip(of.Task)
		putMoment(props, name+"Since", of.Since)
	}
}

// maxKeysText bounds the names of a few keys.
const maxKeysText = 8 << 10

// decodeKeys gives nothing for what is not as this program would write it: the rest of the row is
// good without it.
func decodeKeys(f *row.Fields) (k pump.KeysOver) {
	text, _ := f.Props["KeysOver"].(string)
	bad := len(text) > maxKeysText || json.Unmarshal([]byte(text), &k) != nil
	if bad || k.Keys < 0 || k.Tasks < 0 {
		return pump.KeysOver{}
	}
	return k
}

func decodeIll(f *row.Fields, name string) Ill {
	return Ill{f.Count(name), f.Moment(name + "Since"), f.Line(name + "Error"), f.Line(name + "Task")}
}

// putMoment stores the time that a clock shows. The clock may show anything, but the service keeps
// only times within these bounds.
func putMoment(props map[string]any, name string, at time.Time) {
	if y := at.UTC().Year(); y >= 1900 && y < 9999 {
		props[name] = at.UTC().Truncate(time.Microsecond)
	}
}

func decodeMember(f *row.Fields, instance string) memberRow {
	m := memberRow{
		Member: Member{
			Instance: f.Text("Instance"), Incarnation: f.Text("Incarnation"), Host: f.Line("Host"),
			Version: f.Line("Version"), Role: Role(f.Text("Role")), Started: f.Moment("Started"),
			Holds: f.Binary("Holds"),
			Report: Report{
				Admin: f.Line("Admin"), Waiting: f.Line("Waiting"), Draining: f.Flag("Draining"),
				Reads:    int(f.UpTo("Reads", math.MaxInt32)),
				Accounts: strings.Fields(f.Text("Accounts")), Cannot: namesOf(f, "Cannot"),
				Vouches: namesOf(f, "Vouches"),
				Demand:  decodeAmounts(f, "Demand"), Guessed: f.Flag("Guessed"),
				Throttles: counts(decodeAmounts(f, "Throttles")),
				Tasks:     f.Count("Tasks"), Rate: f.Number("Rate"), Seconds: f.Number("Seconds"),
				Pace: f.Number("Pace"), Hides: f.Number("Hides"),
				Unread: f.Number("Unread"), UnreadQueue: f.Line("UnreadQueue"),
				UnreadForeign: f.Number("UnreadForeign"),
				ForeignPolled: uint64(f.Integer("ForeignPolled")), Samples: f.Flag("Samples"),
				Held: decodeAmounts(f, "Held"), Later: decodeAmounts(f, "Later"), Deletes: f.Count("Deletes"),
				Throttled: f.Count("Throttled"), Queues: int(f.UpTo("Queues", math.MaxInt32)),
				Failing: decodeIll(f, "Failing"), Stuck: decodeIll(f, "Stuck"), AllStuck: f.Flag("AllStuck"),
				NotNow: f.Count("NotNow"), NotNowSince: f.Moment("NotNowSince"),
				NotNowError: f.Line("NotNowError"), Trouble: f.Line("Trouble"), Paused: f.Flag("Paused"),
				KeysOver: decodeKeys(f), Asked: decodeAsked(f), AskedSince: f.Moment("AskedSince"),
				Operations: bytesOf(f, "Operations"),
				Day:        decodeDay(f), Spends: f.Number("Spends"), Slower: f.Number("Slower"),
				HoldsBack: f.Flag("HoldsBack"), Own: namesOf(f, "Own"), Settings: f.Line("Settings"),
			},
		},
		Times: row.Times{
			Beat: f.Duration("Beat"), Lease: f.Duration("Lease"), Margin: f.Duration("Margin"),
		},
		beats: f.Count("Beats"), musters: f.Flag("Musters"),
	}
	switch {
	case f.Err != nil:
	case m.Instance != instance:
		f.Fail("Instance", fmt.Sprintf("is %q in the row of %q", m.Instance, instance))
	case !validInstance.MatchString(m.Incarnation) || len(m.Incarnation) > maxIncarnation:
		f.Fail("Incarnation", fmt.Sprintf("is %q", m.Incarnation))
	case m.Role != RoleProcessor && m.Role != RoleDistributor:
		f.Fail("Role", fmt.Sprintf("is %q", m.Role))
	case m.Times.Check() != nil:
		f.Fail("Lease", m.Times.Check().Error())
	case len(m.Holds) > shardmap.MaxSegments/8:
		f.Fail("Holds", fmt.Sprintf("has %d bytes", len(m.Holds)))
	case len(m.Accounts) > maxAccounts:
		f.Fail("Accounts", fmt.Sprintf("has %d names", len(m.Accounts)))
	case len(m.Cannot) > maxCannot || len(m.Vouches) > maxAccounts:
		f.Fail("Cannot", fmt.Sprintf("has %d names, and Vouches %d", len(m.Cannot), len(m.Vouches)))
	}
	return m
}

// namesOf is a list of names, or nil.
func namesOf(f *row.Fields, name string) []string {
	if text := f.Text(name); text != "" {
		return strings.Fields(text)
	}
	return nil
}

// bytesOf is a property of bytes; any other type counts as missing.
func bytesOf(f *row.Fields, name string) []byte {
	b, _ := f.Props[name].([]byte)
	return b
}

// encodeAmounts stores a number for each account, those of zero left out.
func encodeAmounts(of map[string]float64) string {
	kept := map[string]float64{}
	// "": and a number, of up to 25 bytes
	for _, name := range fitting(slices.Sorted(maps.Keys(of)), 30) {
		if x := row.Finite(of[name]); x > 0 {
			kept[name] = x
		}
	}
	text, _ := json.Marshal(kept) // keys in order; finite numbers only
	return string(text)
}

func decodeAmounts(f *row.Fields, property string) map[string]float64 {
	text := f.Text(property)
	if text == "" || f.Err != nil {
		return nil
	}
	var of map[string]float64
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		f.Fail(property, "is not an object of numbers")
		return nil
	}
	if len(of) > maxAccounts {
		f.Fail(property, fmt.Sprintf("has %d accounts", len(of)))
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if x := of[name]; x < 0 || x > row.MaxDemand {
			f.Fail(property, fmt.Sprintf("is %v for %q", x, name))
			return nil
		}
	}
	return of
}

func amounts(counts map[string]uint64) map[string]float64 {
	of := map[string]float64{}
	for name, n := range counts {
		of[name] = float64(n)
	}
	return of
}

func counts(of map[string]float64) map[string]uint64 {
	var counts map[string]uint64
	for name, x := range of {
		if counts == nil {
			counts = map[string]uint64{}
		}
		counts[name] = uint64(x)
	}
	return counts
}

// fitting gives the first names that fit a property, with extra more bytes for each. Names of
// accounts have no spaces and nothing that JSON must escape.
func fitting(names []string, extra int) []string {
	kept, size := make([]string, 0, len(names)), 0
	for _, n := range names {
		if size += len(n) + extra; size > maxNames || len(kept) == maxAccounts {
			break
		}
		if n != "" &&
			!strings.ContainsFunc(n, func(r rune) bool {
				return r <= ' ' || r > '~' || strings.ContainsRune(`"\\<>&`, r)
			}) {
			kept = append(kept, n)
		}
	}
	return kept
}
