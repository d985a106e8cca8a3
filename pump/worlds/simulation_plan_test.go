package worlds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
)

// A fault plan is a whole simulated history that a person can read: one line a
// setting or a step, # for remarks. simPlanOf writes one for a seed, and a seed that fails
// prints it. Settings come first; what is left out has the value shown:
//
//	seed 1             what chance is made of: latencies, jitter, nonces, which request a fault
//	                   hits, what handlers do
//	accounts 1         accounta (which has the control table), accountb, ...
//	queues 2           of each
//	tasks 200          of the elected distributors' source; a distributor o1, o2, ... has a fifth
//	                   of that of its own
//	keys 40            how many keys the tasks have
//	pack 4             tasks in an envelope, at most
//	pace 20s           how long it takes to read the source
//	live no            the source cannot be read again
//	bad 0              of a hundred records so many are no tasks
//	delivery once      or at-least-once
//	reducer no         tasks are counted by a Reducer
//	handlers 8         at once in each processor
//	work 1s            handlers take up to so long
//	trouble 10         of a hundred tasks so many fail, ask for a retry, panic or are rejected
//	visibility 30s     of messages in a processor's hands
//	limit 0            messages a second that a queue takes; 0: the published limit
//	receipts 404       what the service answers to a stale receipt, or 400
//	segments 64        of the workload; each 64 have a ledger partition of their own
//	tables 0s          a request of a table takes up to so long more than one of a queue
//	entities no        a query costs the rows it answers, and not one request
//	pad 0              bytes that each segment's state has beside its sums, so that its ledger has
//	                   pages
//	runs 0             so many distributions of a few tasks besides, one after the other; one in a
//	                   hundred dies in the middle
//	every 0s           a run begins so long after the one before
//	beat 5s            how often processes say that they live; their lease is four times that
//	files 0            the elected distributors read so many files; 0: records that are made on the way
//	foreign 0          messages of another program, of which ledgers keep few names
//	perkey 0           tasks of a key at once in handlers, at most; 0: any number
//	results no         what handlers answer is kept in blobs
//	bodies no          some tasks are large: their bodies are in blobs
//	full no            the reducer's state of one segment has no room
//	gated no           p3, p4, ... wait at the gate "go" when they start, which is open in the end at the latest
//
// Steps follow, each with the time since the beginning at which it happens. d1, d2, ... are elected
// distributors. o1, ... distribute once, and so do o100, ..., which the setting runs is about. s1,
// ... are programs with a Sender, n1, ... give the command of one named run, p1, ... are processors, and x1, ... operators, each of whom lives
// as long as its command. A process that crashed or whose Run failed is not started again by
// itself.
//
//	3.5s start p1
//	9s stop p1                       in good order, in the background
//	9s crash p1                      at once
//	9s crash p1 before delete 3      before its third delete from now on is sent
//	9s crash p1 after delete 3       after that has acted, before the answer is seen
//	9s restart p1                    crash, unless it is gone, and start
//	9s pause p1 40s                  a stopped process: what it was about to send is sent when it goes on
//	9s pause p1 40s before delete 3  when that is about to be sent
//	9s clock +30s                    the service's clock jumps
//	9s suspend p1 40s                or "all": its machine sleeps, so that the monotonic clock
//	                                 misses what passes
//	9s stray accountb                a message of a run that no process has begun is put into a queue
//	9s copy accountb                 messages of a queue are put into it again, long after their
//	                                 run was closed
//	9s dark accountb 20s             nothing reaches the account; "hang": it never answers
//	9s disable accountb 20s          each request to it is answered 403 AccountIsDisabled
//	9s gone accountb 20s             its name leads to no host; for an hour: for good, until an operator
//	                                 has removed it, in the end at the latest
//	9s gone accountb 1h full         and then it comes back and is added, "empty": as another of its name
//	9s unqueue accountb              its work queues are deleted with what is in them
//	9s operate x1 redrive            or drop, repair, release, hold: of all that is in quarantine,
//	                                 of each run, of the gate
//	9s operate x1 end                or end-drop: one of the runs that are not closed
//	9s operate x1 delete             or show: the workload, of which all go on
//	9s operate x1 drain accountb     or add, remove
//	9s operate x1 coordinate         a program that takes numbers and claims a key for a minute
//	9s keep work                     a partition of the control table is remembered
//	9s back work                     and comes back as it was then
//	9s lose owner                    rows of the workload's partition that begin so are gone, or
//	                                 "work.ids": of that partition all; "work.runs/named": the named run's row
//	9s source grow                   the files of the elected distributors: grow, cut, rewrite (a
//	                                 line), appear, vanish (a file)
//	9s unread d1 20s                 or "all": it cannot read the files; for an hour: never again
//	9s busy p1 20s                   or "all": what its handlers use says "not now"
//	9s newer envelopes accountb      messages of a queue are put into it as a newer version would have made them
//	9s newer member p9               it dies, and its row as a member is of a newer format
//	9s newer row work.runs/ 20s      a row of that partition, whose key begins so, is of a newer format for so long
//	9s remake                        the workload's row is removed and made again as it was
//	9s fewer p1                      it is started again with fewer attempts
//	9s turn p1                       it is started again with its accounts in another order
//	9s fault 20s answer-lost PutMessage probability=0.3 account=accountb instance=p1
//	                                 requests of an operation go wrong for 20 s, in a way of
//	                                 package azsim; those of an instance for an hour: for ever; those
//	                                 of an account for an hour: until an operator gives it up
type simPlan struct {
	seed              uint64
	accounts, queues  int
	tasks, keys, pack int
	pace              time.Duration
	live              bool
	bad               int
	delivery          pump.Delivery
	reducer           bool
	handlers          int
	work              time.Duration
	trouble           int
	visibility        time.Duration
	limit, receipts   int
	segments          int
	tables            time.Duration
	entities          bool
	pad               int
	runs              int
	every             time.Duration
	gated             bool
	beat              time.Duration
	files             int
	foreign           int
	perKey            int
	full              bool
	results, bodies   bool
	steps             []simStep

	kind string // of the seed that wrote it; see simKinds
}

// simStep is one thing that happens.
type simStep struct {
	at    time.Duration
	verb  string
	who   string // a process or an account
	span  time.Duration
	after bool   // of a crash: once the request has acted
	point string // of a crash: one of simPoints or simSteps; "" is at once
	nth   int
	rule  azsim.Rule
	order []string // to an operator: the command and its arguments
}

// simPoints are the requests, and the one thing that is none, that a process may
// die before or after.
var simPoints = []string{"put", "get", "renew", "replace", "delete", "read", "write", "transact", "query", "effect"}

// simSteps are requests that are told by what they do. Plans of seeds do not have them.
var simSteps = []string{"checkpoint", "seal", "break", "commit", "poison", "mark", "drop", "object", "note", "index", "sweep", "fetch"}

func newSimPlan() *simPlan {
	return &simPlan{
		seed: 1, accounts: 1, queues: 2, tasks: 200, keys: 40, pack: 4, pace: 20 * time.Second, delivery: pump.Once, handlers: 8,
		work: time.Second, trouble: 10, visibility: 30 * time.Second, receipts: 404, segments: 64, beat: simBeat,
	}
}

// parseSimPlan reads a plan; every error names its line.
func parseSimPlan(text string) (*simPlan, error) {
	p := newSimPlan()
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := p.line(words); err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", i+1, strings.Join(words, " "), err)
		}
	}
	slices.SortStableFunc(p.steps, func(a, b simStep) int { return cmp.Compare(a.at, b.at) })
	return p, nil
}

func (p *simPlan) line(words []string) error {
	if c := words[0][0]; c >= '0' && c <= '9' {
		at, err := time.ParseDuration(words[0])
		if err != nil || len(words) < 2 {
			return errors.New("a step is a time and what happens")
		}
		s := simStep{at: at, verb: words[1]}
		if err := s.parse(words[2:], p.accounts); err != nil {
			return err
		}
		p.steps = append(p.steps, s)
		return nil
	}
	if len(words) != 2 {
		return errors.New("a setting has one value")
	}
	return p.setting(words[0], words[1])
}

func (p *simPlan) setting(name, value string) (err error) {
	type span struct {
		to          *int
		least, most int
	}
	numbers := map[string]span{
		"accounts": {&p.accounts, 1, 9}, "queues": {&p.queues, 1, 16}, "tasks": {&p.tasks, 1, 1_000_000},
		"keys": {&p.keys, 1, 1_000_000}, "pack": {&p.pack, 1, 10_000}, "bad": {&p.bad, 0, 50},
		"handlers": {&p.handlers, 1, 1000}, "trouble": {&p.trouble, 0, 100}, "limit": {&p.limit, 0, 100_000},
		"receipts": {&p.receipts, 400, 404}, "segments": {&p.segments, 64, 4096}, "pad": {&p.pad, 0, 500_000},
		"runs": {&p.runs, 0, 100_000}, "files": {&p.files, 0, 9}, "foreign": {&p.foreign, 0, 10_000},
		"perkey": {&p.perKey, 0, 1000},
	}
	times := map[string]*time.Duration{
		"pace": &p.pace, "work": &p.work, "visibility": &p.visibility, "tables": &p.tables, "every": &p.every, "beat": &p.beat,
	}
	switches := map[string]*bool{
		"live": &p.live, "reducer": &p.reducer, "entities": &p.entities, "gated": &p.gated, "full": &p.full,
		"results": &p.results, "bodies": &p.bodies,
	}
	if n := numbers[name]; n.to != nil {
		err = parseNumber(n.to, value, n.least, n.most)
	} else if to := times[name]; to != nil {
		*to, err = time.ParseDuration(value)
	} else if to := switches[name]; to != nil {
		err = parseYes(to, value)
	} else if name == "seed" {
		p.seed, err = strconv.ParseUint(value, 10, 64)
	} else if name == "delivery" {
		p.delivery = pump.Delivery(value)
	} else {
		return errors.New("no such setting")
	}
	switch {
	case err != nil:
		return err
	case p.delivery != pump.Once && p.delivery != pump.AtLeastOnce:
		return fmt.Errorf("must be %s or %s", pump.Once, pump.AtLeastOnce)
	case p.receipts != 400 && p.receipts != 404:
		return errors.New("must be 400 or 404")
	case p.segments%64 != 0:
		return errors.New("must be a multiple of 64")
	case p.beat < time.Second || p.beat > 5*time.Minute:
		return errors.New("must be 1s to 5m")
	}
	return nil
}

func parseNumber(to *int, value string, least, most int) (err error) {
	if *to, err = strconv.Atoi(value); err == nil && (*to < least || *to > most) {
		err = fmt.Errorf("must be %d to %d", least, most)
	}
	return err
}

func parseYes(to *bool, value string) error {
	if *to = value == "yes"; !*to && value != "no" {
		return errors.New("must be yes or no")
	}
	return nil
}

func (s *simStep) parse(args []string, accounts int) (err error) {
	want := func(n int) bool {
		if len(args) != n {
			err = fmt.Errorf("%s needs %d arguments", s.verb, n)
		}
		return err == nil
	}
	if len(args) > 0 {
		s.who = args[0]
	}
	switch s.verb {
	case "remake":
		want(0)
	case "start", "stop", "restart", "turn", "fewer":
		if want(1) {
			err = checkSimName(s.who)
		}
	case "crash":
		if len(args) != 1 && !want(4) {
			return err
		}
		if err = checkSimName(s.who); err == nil && len(args) == 4 {
			err = s.parsePoint(args[1:])
		}
	case "pause":
		if len(args) != 5 && !want(2) {
			return err
		}
		s.span, err = simSpan(args[1])
		if err = cmp.Or(checkSimName(s.who), err); err == nil && len(args) == 5 {
			err = s.parsePoint(args[2:])
		}
	case "suspend":
		if want(2) {
			if s.span, err = simSpan(args[1]); err == nil && s.who != "all" {
				err = checkSimName(s.who)
			}
		}
	case "clock":
		if s.who = ""; want(1) {
			s.span, err = time.ParseDuration(args[0])
		}
	case "dark", "hang":
		if want(2) {
			s.span, err = simSpan(args[1])
			err = cmp.Or(checkSimAccount(s.who, accounts), err)
		}
	case "stray", "copy":
		if want(1) {
			err = checkSimAccount(s.who, accounts)
		}
	case "operate":
		if err = checkSimName(s.who); err == nil {
			err = s.parseOrder(args, accounts)
		}
	case "keep", "back", "lose":
		want(1)
	case "newer":
		err = s.parseNewer(args, accounts)
	case "source":
		if want(1) && !slices.Contains(simChanges, s.who) {
			err = fmt.Errorf("%q is none of %s", s.who, strings.Join(simChanges, ", "))
		}
	case "unread", "busy":
		if want(2) {
			if s.span, err = simSpan(args[1]); err == nil && s.who != "all" {
				err = checkSimName(s.who)
			}
		}
	case "fault":
		s.who = ""
		err = s.parseFault(args)
	default:
		err = s.parseState(args, accounts)
	}
	return err
}

func simSpan(arg string) (time.Duration, error) {
	d, err := time.ParseDuration(arg)
	if err == nil && (d <= 0 || d > time.Hour) {
		err = errors.New("must be above 0 and at most an hour")
	}
	return d, err
}

func checkSimAccount(name string, accounts int) error {
	if n := len(name) - 1; n < 0 || name[:n] != "account" || int(name[n]-'a') >= accounts {
		return fmt.Errorf("%q is no account", name)
	}
	return nil
}

func checkSimName(name string) error {
	if len(name) >= 2 && strings.ContainsRune("dnopsx", rune(name[0])) {
		if n, err := strconv.Atoi(name[1:]); err == nil && n > 0 && n < 100 {
			return nil
		}
	}
	return fmt.Errorf("%q is no process: they are d1, o1, p1, s1, x1, ...", name)
}

func (s *simStep) parsePoint(args []string) (err error) {
	s.after, s.point = args[0] == "after", args[1]
	if !s.after && args[0] != "before" {
		return errors.New("a crash is before or after something")
	}
	if all := slices.Concat(simPoints, simSteps); !slices.Contains(all, s.point) {
		return fmt.Errorf("%q is none of %s", s.point, strings.Join(all, ", "))
	}
	if s.nth, err = strconv.Atoi(args[2]); err == nil && s.nth < 1 {
		err = errors.New("the first is 1")
	}
	return err
}

func (s *simStep) parseFault(args []string) (err error) {
	if len(args) < 3 {
		return errors.New("a fault has a span, a kind and an operation")
	}
	if s.span, err = simSpan(args[0]); err != nil {
		return err
	}
	s.rule = azsim.Rule{Fault: azsim.FaultKind(args[1])}
	if args[2] != "any" {
		s.rule.Operations = []string{args[2]}
	}
	r := &s.rule
	texts := map[string]*string{
		"account": &r.Account, "service": &r.Service, "instance": &r.Instance, "partition": &r.Partition, "code": &r.Code,
	}
	numbers := map[string]*int{"status": &r.Status, "first": &r.First, "skip": &r.Skip}
	times := map[string]*time.Duration{"delay": &r.Delay, "retryafter": &r.RetryAfter}
	for _, arg := range args[3:] {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case texts[name] != nil:
			*texts[name] = value
		case numbers[name] != nil:
			*numbers[name], err = strconv.Atoi(value)
		case times[name] != nil:
			*times[name], err = time.ParseDuration(value)
		case name == "probability":
			r.Probability, err = strconv.ParseFloat(value, 64)
		default:
			err = fmt.Errorf("no such property %q", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// suspends says that machines sleep in the plan.
func (p *simPlan) suspends() bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb == "suspend" })
}

// lease is the lease of all processes.
func (p *simPlan) lease() time.Duration { return 4 * p.beat }
