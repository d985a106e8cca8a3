package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/status"
)

// How things stand, in a word.
const (
	Good  = "good"  // work is done, or there is none
	Quiet = "quiet" // nothing is to be done, or an operator has ordered that nothing is
	Warn  = "warn"  // work goes on, slower than it could
	Bad   = "bad"   // work stands still, or nothing is known
)

// Headline says in one sentence how a workload stands and what limits it now.
type Headline struct {
	Text string `json:"text"`
	Tone string `json:"tone"` // Good, Quiet, Warn or Bad
	// Rate is how many tasks a second live processors have done lately.
	Rate float64 `json:"tasksPerSecond"`
	// Account is the account that is nearest to its limit. Part is how near: 1 is at the limit.
	Account string  `json:"account"`
	Part    float64 `json:"part"`
	// HeldBackBy is what holds the rate back; empty: nothing waits.
	HeldBackBy string `json:"heldBackBy"`
}

// trend is what only two readings together say: the requests a second that were refused as too
// many, by account.
type trend struct{ refused map[string]float64 }

const (
	// atLimit is the part of a limit from which on the limit holds the rate back. Budgets leave the
	// service some room, so demand that is met does not reach the whole limit.
	atLimit = 0.9
	// busyFrom is the busy part of its handlers from which on a processor waits for them.
	busyFrom = 0.7
	// waitsFrom is the age of the oldest visible message from which on messages wait: a message that
	// is fetched as fast as it comes is visible for a moment too.
	waitsFrom = 3.0
	// stands is the rate below which work counts as standing still.
	pageStands = 0.05
	// clock is how a moment is shown.
	clock = "15:04 MST"
)

// HeadlineOf is the headline of one reading, which knows of no requests that were refused just now.
func HeadlineOf(s *status.Status, err error) Headline { return headlineOf(s, trend{}, err) }

// headlineOf makes the headline of a status. The error is that of reading it.
func headlineOf(s *status.Status, t trend, err error) Headline {
	if s == nil || err != nil {
		h := unknown(err)
		if s != nil && s.Segments > 0 && h.Tone == Bad { // what was read before
			h.Text += "; what is shown is as of " + s.Time.UTC().Format("15:04:05 MST")
		}
		return h
	}
	n := count(s)
	h := Headline{Rate: n.rate, Tone: Good}
	h.Account, h.Part = busiest(s)
	if h.standing(s, n) {
		h.Text += partsText(s)
		return h
	}
	what, tone := heldBack(s, t, n, h)
	h.HeldBackBy, h.Tone = what, tone
	var parts []string
	switch {
	case n.rate >= pageStands:
		parts = append(parts, rateText(n.rate)+" tasks/s")
	case n.sending > 0:
		parts = append(parts, rateText(n.sending)+" tasks/s are sent")
	default:
		parts = append(parts, "0 tasks/s")
	}
	if h.Part >= 0.005 {
		parts = append(parts, fmt.Sprintf("%.0f %% of account %s's limit", 100*h.Part, h.Account))
	}
	switch {
	case what != "":
		parts = append(parts, "what holds it back: "+what)
	case n.known:
		parts = append(parts, "nothing waits")
	default:
		h.Tone = Quiet
		parts = append(parts, "what waits is not known yet: not every account was looked at")
	}
	h.Text = strings.Join(parts, "; ") + partsText(s)
	return h
}

// idShown is how many digits of a run's identity the headline has, keyShown how many bytes of a
// key.
const idShown, keyShown = 4, 40

// partsText names the runs and keys that are paused by themselves; empty without any.
func partsText(s *status.Status) string {
	paused := s.PausedParts
	switch n := len(paused); {
	case n == 0:
		return ""
	case n > 1:
		return fmt.Sprintf("; %d runs and keys are paused", n)
	}
	if p := paused[0]; p.Run != "" {
		return fmt.Sprintf("; run %s… is paused", p.Run[:min(idShown, len(p.Run))])
	}
	key := paused[0].Key
	if len(key) > keyShown {
		key = strings.ToValidUTF8(key[:keyShown], "") + "…"
	}
	return fmt.Sprintf("; key %s is paused", key)
}

func unknown(err error) Headline {
	if errors.Is(err, pump.ErrNoWorkload) {
		return Headline{
			Tone: Quiet, Text: "There is no such workload yet: the first distributor run makes it",
		}
	}
	why := "it was not read yet"
	if err != nil {
		why, _, _ = strings.Cut(err.Error(), "\n")
	}
	return Headline{Tone: Bad, Text: "The workload cannot be read: " + why}
}

// counted is what a status comes to.
type counted struct {
	rate, sending float64
	live, silent  int // processors
	paused, at    int // of the live ones, without a task at work; that wait at a gate
	gate          string
	messages      int64
	held          int64 // tasks of keys over their limits
	looked        int   // queues that were read by now
	waiting       bool  // messages wait
	known         bool  // every queue was looked at
	oldest        float64
}

func count(s *status.Status) (n counted) {
	for i := range s.Instances {
		p := &s.Instances[i]
		switch {
		case p.Silent && p.Role == "processor":
			n.silent++
		case p.Silent:
		case p.Role == "distributor":
			n.sending += p.Rate
		case p.Role == "processor":
			n.live++
			n.rate += p.Rate
			n.held += int64(p.KeysOver.Tasks)
			if p.Waiting != "" {
				n.at, n.gate = n.at+1, p.Waiting
			}
			if p.Paused {
				n.paused++
			}
		}
	}
	n.known = true
	for i := range s.Accounts {
		a := &s.Accounts[i]
		n.messages += a.Messages
		n.looked += len(a.ByQueue)
		n.known = n.known && (a.State == accounts.Unused || len(a.ByQueue) > 0 && a.Dark == "")
		for j := range a.ByQueue {
			q := &a.ByQueue[j]
			if q.Oldest != nil {
				n.oldest = max(n.oldest, *q.Oldest)
			}
			n.waiting = n.waiting || q.Bounds
		}
	}
	n.waiting = n.waiting || n.oldest >= waitsFrom
	return n
}

// busiest is the account that is nearest to its limit.
func busiest(s *status.Status) (name string, part float64) {
	for i := range s.Accounts {
		if a := &s.Accounts[i]; a.Limit > 0 && a.Demand/a.Limit > part {
			name, part = a.Name, a.Demand/a.Limit
		}
	}
	return name, part
}

// dueLate is how late a run by a schedule is before that is said.
const dueLate = 2 * time.Minute

// standing says why no work is done, if so.
func (h *Headline) standing(s *status.Status, n counted) bool {
	wait := plural(n.messages, "message waits", "messages wait")
	switch {
	case s.PausedSince != nil:
		h.Tone, h.HeldBackBy = Quiet, "a pause"
		h.Text = fmt.Sprintf("Paused since %s by %s", s.PausedSince.UTC().Format(clock), s.PausedBy)
		if still := n.live - n.paused - n.at; still > 0 {
			h.Text += fmt.Sprintf("; %s still finish what they began",
				plural(int64(still), "processor", "processors"))
			if still == 1 {
				h.Text = strings.Replace(h.Text, "still finish what they", "still finishes what it", 1)
			}
		} else if n.messages > 0 {
			h.Text += "; " + wait
		}
	case n.live > 0 && n.live == n.at:
		h.Tone, h.HeldBackBy = Quiet, "gate "+n.gate
		h.Text = fmt.Sprintf("%s at gate %s; open it with: distributor gate open %s",
			plural(int64(n.at), "processor waits", "processors wait"), n.gate, n.gate)
	case n.live == 0 && n.messages > 0:
		h.Tone, h.HeldBackBy = Bad, "no live processor"
		h.Text = fmt.Sprintf("Nothing is done: no processor is live; %s", wait)
	case n.live == 0 && n.silent > 0:
		h.Tone, h.HeldBackBy = Bad, "no live processor"
		h.Text = fmt.Sprintf("Nothing is done: %s",
			plural(int64(n.silent), "processor is silent", "processors are silent"))
	case s.Distribution.Next != nil && s.Distribution.Cron != "" && n.sending == 0 &&
		s.Time.Sub(*s.Distribution.Next) > dueLate:
		h.Tone, h.HeldBackBy = Bad, "no distributor that can send"
		h.Text = fmt.Sprintf("The run that was due at %s is not made: see the logs of the distributors",
			s.Distribution.Next.UTC().Format(clock))
	case n.live == 0 && n.sending == 0 && n.known:
		h.Tone, h.Text = Quiet, "Nothing to do: no message waits, and no processor is live"
	case n.rate < pageStands && n.sending == 0 && n.messages == 0 && n.known && len(s.Unowned) == 0:
		h.Tone = Good
		h.Text = fmt.Sprintf("Nothing to do: no message waits, and %s",
			plural(int64(n.live), "processor is ready", "processors are ready"))
		if n.silent > 0 {
			h.Tone = Warn
			h.Text += fmt.Sprintf("; %s silent", plural(int64(n.silent), "other is", "others are"))
		}
	default:
		return false
	}
	return true
}

// heldBack is what holds the rate back, the worst first; empty: only the amount of work does.
func heldBack(s *status.Status, t trend, n counted, h Headline) (what, tone string) {
	unread, throttled := unreadOnes(s)
	if unread != "" && !throttled {
		return unread, Bad
	}
	if what = ill(s, n); what != "" {
		if n.rate < pageStands {
			return what, Bad
		}
		return what, Warn
	}
	if name, rate := mostRefused(t); rate >= 0.5 {
		return fmt.Sprintf("account %s, which refuses %s requests/s as too many", name, rateText(rate)),
			Warn
	}
	if unread != "" {
		return unread, Warn
	}
	if h.Part >= atLimit {
		return fmt.Sprintf("account %s's limit", h.Account), Warn
	}
	if n.silent > 0 {
		return fmt.Sprintf("%s, whose segments go to others within two leases",
			plural(int64(n.silent), "silent processor", "silent processors")), Warn
	}
	if none := len(s.Unowned); none > 0 && n.live > 0 {
		return plural(int64(none), "segment without an owner", "segments without an owner"), Warn
	}
	if l := s.Ledger; l != nil && l.Used >= 1 {
		return fmt.Sprintf("the ledger of segment %d, which is full until runs end", l.Segment), Warn
	}
	if !n.waiting && n.held > 0 {
		return "the limits by key: " + plural(n.held, "task waits", "tasks wait"), Good
	}
	if !n.waiting {
		return "", Good
	}
	if n.live == 0 {
		return "no live processor", Bad
	}
	if of := s.Money.HoldBack; of > 0 { // gets wait, whether or not the handlers are busy
		what = capOf(&s.Money)
		if of < n.live {
			what += fmt.Sprintf(": gets are held back by %d of %d processors", of, n.live)
		}
		return what, Warn
	}
	what, tone = handlersTrouble(s)
	if tone == Good && n.rate < pageStands { // what waits is not done
		tone = Warn
	}
	return what, tone
}

// ill says what is wrong with the handlers themselves, in the worst process; empty: nothing that
// would hold the rate back.
func ill(s *status.Status, n counted) string {
	still := n.rate < pageStands
	var failing, stuck, told []*status.Instance
	for i := range s.Instances {
		p := &s.Instances[i]
		if p.Silent || p.Role != "processor" {
			continue
		}
		if p.Failing != nil {
			failing = append(failing, p)
		}
		if p.Stuck != nil && (p.AllStuck || still) {
			stuck = append(stuck, p)
		}
		if p.NotNowSince != nil && (still || n.waiting) {
			told = append(told, p)
		}
	}
	most := func(of []*status.Instance, count func(*status.Instance) uint64) *status.Instance {
		return slices.MaxFunc(of, func(a, b *status.Instance) int {
			return cmp.Compare(count(a), count(b))
		})
	}
	on := func(of []*status.Instance) string {
		if len(of) == n.live {
			return ""
		}
		return fmt.Sprintf(" of %d of %d processors", len(of), n.live)
	}
	switch {
	case len(failing) > 0:
		f := most(failing, func(p *status.Instance) uint64 { return p.Failing.Count }).Failing
		return fmt.Sprintf("handlers%s fail: %s (task %s)", on(failing), f.Error, f.Task)
	case len(stuck) > 0:
		f := slices.MinFunc(stuck, func(a, b *status.Instance) int {
			return a.Stuck.Since.Compare(b.Stuck.Since)
		}).Stuck
		return fmt.Sprintf("handlers%s have not returned since %s (task %s)", on(stuck),
			f.Since.UTC().Format(clock), f.Task)
	case len(told) > 0:
		p := most(told, func(p *status.Instance) uint64 { return p.NotNow })
		return fmt.Sprintf("handlers%s are told \"not now\" since %s: %s", on(told),
			p.NotNowSince.UTC().Format(clock), p.NotNowError)
	}
	return ""
}

// capOf names the cap on what a day costs. The configuration of the viewer may have none.
func capOf(m *status.Money) string {
	if m.CapPerDay == nil {
		return "the day's cap"
	}
	return "the day's cap of " + Amount(*m.CapPerDay, m.Prices.Currency)
}

// handlersTrouble says which handlers hold the rate back, or that none do.
func handlersTrouble(s *status.Status) (what, tone string) {
	var busy []*status.Instance
	hosts := map[string]bool{}
	working, begun, sum, known := 0, 0, 0.0, 0
	for i := range s.Instances {
		p := &s.Instances[i]
		if p.Role != "processor" || p.Silent || p.Waiting != "" {
			continue
		}
		working++
		if p.Begun {
			begun++
		}
		if p.Busy > 0 {
			known++
			sum += p.Busy
		}
		if p.Busy >= busyFrom {
			busy = append(busy, p)
			hosts[p.Host] = true
		}
	}
	worst := ""
	if len(busy) > 0 {
		worst = slices.MaxFunc(busy, func(a, b *status.Instance) int {
			return cmp.Compare(a.Busy, b.Busy)
		}).Host
	}
	switch {
	case len(busy) == 0 && s.Money.Slowed > 0: // what waits came into queues that were empty
		return capOf(&s.Money) + ": empty queues are polled more slowly", Warn
	case known == 0 && begun == working:
		return "the processors have just begun", Quiet
	case known == 0:
		return "handlers; none has ended a task lately", Warn
	case len(busy) == 0:
		return fmt.Sprintf("neither accounts nor handlers (%.0f %% busy): a rate that is set, "+
			"or tasks that wait for their turn", 100*sum/float64(known)), Good
	case len(hosts) == 1:
		return "handlers on " + worst, Good
	case len(busy) == working:
		return fmt.Sprintf("handlers: all %d processors are busy", working), Good
	}
	return fmt.Sprintf("handlers on %s and %s", worst,
		plural(int64(len(hosts)-1), "other machine", "other machines")), Good
}

// unreadOnes names the accounts that could not be read and fail in the worst way; empty: none.
// Throttled: they only refuse requests as too many.
func unreadOnes(s *status.Status) (what string, throttled bool) {
	ways := []struct{ by, one, some string }{ // by the words of storage.Error, the worst first
		{"", "which does not answer", "which do not answer"},
		{"access denied", "which refuses the credential", "which refuse the credential"},
		{"missing", "which lacks a queue or is disabled", "which lack a queue or are disabled"},
		{"throttled", "which refuses requests as too many", "which refuse requests as too many"},
	}
	names := make([][]string, len(ways))
	for i := range s.Accounts {
		if a := &s.Accounts[i]; a.Dark != "" {
			_, why, _ := strings.Cut(a.Dark, ": ")
			w := len(ways) - 1
			for !strings.HasPrefix(why, ways[w].by) {
				w--
			}
			names[w] = append(names[w], a.Name)
		}
	}
	for i, w := range ways {
		if len(names[i]) > 0 {
			return someOf(names[i], "account", w.one, w.some), i == len(ways)-1
		}
	}
	return "", false
}

func mostRefused(t trend) (name string, most float64) {
	for account, rate := range t.refused {
		if rate > most || rate == most && account < name {
			name, most = account, rate
		}
	}
	return name, most
}

// someOf names one of several.
func someOf(names []string, thing, one, many string) string {
	if len(names) == 1 {
		return fmt.Sprintf("%s %s, %s", thing, names[0], one)
	}
	return fmt.Sprintf("%ss %s and %s, %s", thing, names[0],
		plural(int64(len(names)-1), "other", "others"), many)
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(n) + " " + many
}

// rateText is a rate with as many digits as matter.
func rateText(r float64) string {
	if r < 9.95 {
		return fmt.Sprintf("%.1f", r)
	}
	return humanize.Comma(int64(r + 0.5))
}

// Amount is an amount of money with its currency; a small amount has as many digits as matter.
func Amount(x float64, currency string) string {
	digits := 2
	if x > 0 && x < 0.995 {
		digits = 4
	}
	text := humanize.FormatFloat("#,###."+strings.Repeat("#", digits), x)
	return strings.TrimSpace(text + " " + currency)
}

// leftOf is how long the rest takes at a rate.
func leftOf(left uint64, perSecond float64) (seconds float64, ok bool) {
	if perSecond <= 0 {
		return 0, false
	}
	d := time.Duration(float64(left) / perSecond * float64(time.Second))
	return d.Seconds(), d >= 0
}
