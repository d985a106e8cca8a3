package worlds

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

func (s simStep) String() string {
	words := []string{s.at.String(), s.verb}
	if s.who != "" {
		words = append(words, s.who)
	}
	switch s.verb {
	case "crash":
		if s.point != "" {
			words = append(words, map[bool]string{false: "before", true: "after"}[s.after], s.point, strconv.Itoa(s.nth))
		}
	case "clock":
		words = append(words, fmt.Sprintf("%+.3fs", s.span.Seconds()))
	case "pause":
		if words = append(words, s.span.String()); s.point != "" {
			words = append(words, map[bool]string{false: "before", true: "after"}[s.after])
			words = append(words, s.point, strconv.Itoa(s.nth))
		}
	case "gone":
		words = append(append(words, s.span.String()), s.order...)
	case "dark", "hang", "unread", "busy", "suspend", "disable":
		words = append(words, s.span.String())
	case "operate":
		words = append(words, s.order...)
	case "newer":
		if words = append(words, s.order...); s.span > 0 {
			words = append(words, s.span.String())
		}
	case "fault":
		words = append(words, s.span.String(), string(s.rule.Fault), cmp.Or(strings.Join(s.rule.Operations, ","), "any"))
		words = append(words, simProperties(s.rule)...)
	}
	return strings.Join(words, " ")
}

func simProperties(r azsim.Rule) (words []string) {
	add := func(name, value string) {
		if value != "" && value != "0" && value != "0s" {
			words = append(words, name+"="+value)
		}
	}
	add("account", r.Account)
	add("service", r.Service)
	add("instance", r.Instance)
	add("partition", r.Partition)
	add("status", strconv.Itoa(r.Status))
	add("code", r.Code)
	add("delay", r.Delay.String())
	add("retryafter", r.RetryAfter.String())
	add("skip", strconv.Itoa(r.Skip))
	add("first", strconv.Itoa(r.First))
	add("probability", strconv.FormatFloat(r.Probability, 'g', -1, 64))
	return words
}

// String is the plan's text, which plays the same history again.
func (p *simPlan) String() string {
	var b strings.Builder
	yes := map[bool]string{false: "no", true: "yes"}
	fmt.Fprintf(&b, "seed %d\naccounts %d\nqueues %d\ntasks %d\nkeys %d\npack %d\npace %v\nlive %s\nbad %d\ndelivery %s\nreducer %s\n",
		p.seed, p.accounts, p.queues, p.tasks, p.keys, p.pack, p.pace, yes[p.live], p.bad, p.delivery, yes[p.reducer])
	fmt.Fprintf(&b, "handlers %d\nwork %v\ntrouble %d\nvisibility %v\nlimit %d\nreceipts %d\n", p.handlers, p.work, p.trouble, p.visibility, p.limit, p.receipts)
	fmt.Fprintf(&b, "segments %d\ntables %v\nentities %s\npad %d\n", p.segments, p.tables, yes[p.entities], p.pad)
	fmt.Fprintf(&b, "runs %d\nevery %v\nfiles %d\nforeign %d\n", p.runs, p.every, p.files, p.foreign)
	fmt.Fprintf(&b, "full %s\ngated %s\nbeat %v\nperkey %d\nresults %s\nbodies %s\n", yes[p.full], yes[p.gated], p.beat, p.perKey, yes[p.results], yes[p.bodies])
	for _, s := range p.steps {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

func TestAFaultPlanIsReadAsItIsWritten(t *testing.T) {
	plans := []*simPlan{}
	for seed := range uint64(300) {
		plans = append(plans, simPlanOf(seed))
	}
	for _, k := range simKinds { // also of those that come seldom
		for seed := range uint64(5) {
			plans = append(plans, k.planOf(seed))
		}
	}
	for _, plan := range plans {
		seed, text := plan.seed, plan.String()
		again, err := parseSimPlan(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again.String() != text {
			t.Fatalf("seed %d:\n%s\nis read as\n%s", seed, text, again)
		}
	}
}

func TestAMistakeInAFaultPlanIsNamedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"tasks 5\n\nfrobnicate 2":              `line 3, "frobnicate 2": no such setting`,
		"1s frobnicate":                        `line 1, "1s frobnicate": no such step`,
		"1s":                                   "a step is a time and what happens",
		"tasks 0":                              "must be 1 to 1000000",
		"tasks":                                "a setting has one value",
		"delivery twice":                       "must be once or at-least-once",
		"reducer maybe":                        "must be yes or no",
		"receipts 403":                         "must be 400 or 404",
		"1s start y1":                          `"y1" is no process`,
		"1s start p0":                          `"p0" is no process`,
		"1s crash p1 during put 1":             "before or after",
		"1s crash p1 before poke 1":            `"poke" is none of put, get`,
		"1s crash p1 before put 0":             "the first is 1",
		"1s crash p1 before put":               "crash needs 4 arguments",
		"1s pause p1":                          "pause needs 2 arguments",
		"1s pause p1 -4s":                      "above 0",
		"1s suspend all":                       "suspend needs 2 arguments",
		"1s suspend accounta 9s":               `"accounta" is no process`,
		"accounts 2\n1s dark accountc 3s":      `"accountc" is no account`,
		"1s clock fast":                        "invalid duration",
		"1s disable accountb 9s":               `"accountb" is no account`,
		"accounts 2\n1s gone accountb 1h half": "full or empty",
		"accounts 2\n1s gone accountb 9s full": "for good",
		"1s gone accounta 1h":                  "control account",
		"1s unqueue accounta 9s":               "unqueue needs 1 arguments",
		"1s source burn":                       `"burn" is none of grow`,
		"1s unread d1":                         "unread needs 2 arguments",
		"1s busy q1 3s":                        `"q1" is no process`,
		"1s operate x1 burn":                   `"burn" is no command`,
		"1s operate x1 drain accountb":         `"accountb" is no account`,
		"1s operate p1 redrive":                `"p1" is no operator`,
		"segments 100":                         "must be a multiple of 64",
		"1s fault 3s answer":                   "a fault has a span, a kind and an operation",
		"1s fault 3s answer PutMessage loud=1": `no such property "loud"`,
	} {
		_, err := parseSimPlan(text)
		proof.Says(t, err, want, text)
	}
}
