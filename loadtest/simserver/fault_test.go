package simserver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

func TestAFaultIsReadAsPeopleTypeIt(t *testing.T) {
	for text, want := range map[string]Fault{
		"lost-answer": {Kind: "lost-answer"},
		" lost-answer  rate=0.01 op=PutMessage account=one ": {
			Kind: "lost-answer", Rate: 0.01, Operations: []string{"PutMessage"}, Account: "one",
		},
		"error status=500 code=Oops retry-after=2s every=10 skip=1 first=3 op=GetEntity,Batch": {
			Kind: "error", Status: 500, Code: "Oops", RetryAfter: 2 * time.Second,
			Every: 10, Skip: 1, First: 3, Operations: []string{"GetEntity", "Batch"},
		},
		"dark account=two from=30s for=20s repeat=2m": {
			Kind: "dark", Account: "two",
			From: 30 * time.Second, For: 20 * time.Second, Repeat: 2 * time.Minute,
		},
		"refuse code=AuthorizationFailure client=worker-7/1 account=one": {
			Kind: "refuse", Code: "AuthorizationFailure", Client: "worker-7/1", Account: "one",
		},
		"damage partition=work.ledger.01 service=table": {
			Kind: "damage", Partition: "work.ledger.01", Service: "table",
		},
		"gone back=empty for=1m": {Kind: "gone", Back: "empty", For: time.Minute},
		"delay by=250ms service=table object=Orders": {
			Kind: "delay", By: 250 * time.Millisecond, Service: "table", Object: "Orders",
		},
	} {
		f, err := ParseFault(text)
		if err == nil {
			err = f.check([]string{"one", "two"})
		}
		proof.Is(t, err, nil, text)
		proof.Same(t, cmp.Diff(want, f), "", text)
		if again, err := ParseFault(f.String()); err != nil || !cmp.Equal(f, again) {
			t.Errorf("%s: as text %q: %v", text, f, err)
		}
		data, err := json.Marshal(f)
		must(t, err)
		var again Fault
		if err := json.Unmarshal(data, &again); err != nil || !cmp.Equal(f, again) {
			t.Errorf("%s: as JSON %s: %v", text, data, err)
		}
	}
}

// An error names the word that is wrong and what is known.
func TestAFaultThatCannotBeIsRefusedByItsWord(t *testing.T) {
	for text, says := range map[string][]string{
		"":                                   {"unknown kind", "lost-answer"},
		"lost-anwser rate=1":                 {`"lost-anwser"`, "lost-answer", "dark"},
		"error rat=1":                        {`unknown word "rat"`, "rate"},
		"error rate":                         {`"rate"`, "name=value"},
		"error rate=0":                       {`rate: "0"`, "above 0"},
		"error rate=NaN":                     {`rate: "NaN"`},
		"error rate=1.5":                     {`rate: "1.5"`},
		"error rate=1 rate=1":                {"rate", "twice"},
		"error op=PutMesage":                 {`operation "PutMesage"`, "PutMessage"},
		"error service=table op=PutMessage":  {`operation "PutMessage"`, "InsertEntity"},
		"error service=blob":                 {`"blob"`, "queue, table"},
		"error account=three":                {`account "three"`, "one, two"},
		"error status=200":                   {`status: "200"`, "400 to 599"},
		"error code=a\u0085b":                {"code"},
		"error first=-1":                     {`first: "-1"`},
		"error by=1s":                        {"by says nothing", "error", "status"},
		"delay":                              {"by is missing"},
		"delay by=5":                         {`by: "5"`, "250ms"},
		"delay by=2h":                        {`by: "2h"`, "1h"},
		"dark rate=0.5":                      {"rate says nothing", "dark", "account, from"},
		"dark from=-1s":                      {`from: "-1s"`},
		"dark repeat=1m":                     {"repeat needs for"},
		"dark for=1m repeat=1m":              {"repeat=1m0s must be more than for=1m0s"},
		"reorder op=PutMessage":              {`"PutMessage"`, "GetMessages"},
		"reorder service=table":              {"reorder", "queue"},
		"damage service=queue":               {"damage", "table"},
		"damage op=Batch":                    {`"Batch"`, "GetEntity"},
		"error service=queue partition=p":    {"partition", "queues"},
		"reorder partition=p":                {"partition", "queues"},
		"error partition=\u00e4":             {"partition", "ASCII"},
		"error back=empty":                   {"back says nothing"},
		"gone back=half":                     {`"half"`, "empty"},
		"refuse status=500":                  {"status says nothing", "refuse", "code"},
		"disabled object=q":                  {"object says nothing", "disabled"},
		"error account=" + longText(1000):    {"account"},
		"error " + longText(1000) + "=1":     {"unknown word"},
		longText(10_000):                     {"unknown kind"},
		"error op=" + longText(10_000) + ",": {"unknown operation"},
	} {
		f, err := ParseFault(text)
		if err == nil {
			err = f.check([]string{"one", "two"})
		}
		if err == nil {
			t.Errorf("%.60q is taken", text)
			continue
		}
		if len(err.Error()) > 1000 {
			t.Errorf("%.60q: an error of %d bytes", text, len(err.Error()))
		}
		for _, says := range says {
			proof.Says(t, err, says, text)
		}
	}
}

func longText(n int) string { return strings.Repeat("x", n) }

func TestWhatAGoProgramPutsIntoAFaultIsJudgedToo(t *testing.T) {
	for _, f := range []Fault{
		{},
		{Kind: "error", Rate: -1},
		{Kind: "error", Status: 99},
		{Kind: "error", Skip: -1},
		{Kind: "error", Code: "two\r\nlines"},
		{Kind: "delay", By: -1},
		{Kind: "dark", For: -1},
		{Kind: "gone", Back: "half"},
		{Kind: "error", Client: "two words"},
	} {
		if err := f.check(nil); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}

// Each kind that is known has a rule that azsim takes.
func TestEveryKindCanBeInForce(t *testing.T) {
	for _, k := range kinds {
		f := Fault{Kind: k.name}
		if slices.Contains(k.words, "by") {
			f.By = time.Second
		}
		s, err := New(azsim.Config{}, f)
		if err != nil {
			t.Errorf("%s: %v", k.name, err)
			continue
		}
		s.Close()
		proof.Same(t, s.Faults(), "", k.name, "after Close … is in force")
	}
}

// The names of operations are azsim's: what its source calls so.
func TestOperationsAreThoseOfTheSimulator(t *testing.T) {
	files, err := filepath.Glob("../azsim/*.go")
	must(t, err)
	var named []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		for _, re := range []string{
			`(?:\bname: |op\.is\(|op\.name = |op\.name, op\.\w+(?:, op\.object)? = )"([A-Z]\w+)"[,\n]`,
			`(?m)^\tverb\w+: +\{"([A-Z]\w+)"`,
		} {
			for _, m := range regexp.MustCompile(re).FindAllStringSubmatch(string(text), -1) {
				named = append(named, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`"([GS]et)"\+kind\+"(\w+)"`).
			FindAllStringSubmatch(string(text), -1) {
			named = append(named, m[1]+"Queue"+m[2], m[1]+"Table"+m[2])
		}
	}
	slices.Sort(named)
	known := slices.Sorted(slices.Values(slices.Concat(operations["queue"], operations["table"], operations["blob"])))
	proof.Same(t, cmp.Diff(slices.Compact(named), known), "")
}

func TestAScheduleSaysWhenAFaultIsInForce(t *testing.T) {
	const s = time.Second
	once := Fault{From: 30 * s, For: 20 * s}
	again := Fault{From: 30 * s, For: 20 * s, Repeat: 60 * s}
	for _, c := range []struct {
		fault   Fault
		elapsed time.Duration
		on      bool
		next    time.Duration
	}{
		{Fault{}, 0, true, 0},
		{Fault{From: 5 * s}, 0, false, 5 * s},
		{Fault{From: 5 * s}, 5 * s, true, 0},
		{once, 30*s - 1, false, 30 * s},
		{once, 30 * s, true, 50 * s},
		{once, 50*s - 1, true, 50 * s},
		{once, 50 * s, false, 0},
		{again, 50 * s, false, 90 * s},
		{again, 90 * s, true, 110 * s},
		{again, 110 * s, false, 150 * s},
		{again, 30*s + 1000*60*s, true, 50*s + 1000*60*s}, // a machine that was suspended
	} {
		on, next := c.fault.at(c.elapsed)
		if on != c.on || next != c.next {
			t.Errorf("%+v after %v: %v until %v, want %v until %v",
				c.fault, c.elapsed, on, next, c.on, c.next)
		}
	}
}

func TestLimitsAreReadAsPeopleTypeThem(t *testing.T) {
	published := azsim.PublishedLimits()
	for text, want := range map[string]func(l *azsim.Limits){
		"published":              func(*azsim.Limits) {},
		"none":                   func(l *azsim.Limits) { *l = azsim.NoLimits() },
		"queue=500,account=5000": func(l *azsim.Limits) { l.Queue, l.QueueAccount, l.TableAccount = 500, 5000, 5000 },
		"queue=none,account=7,tableAccount=8,getCost=1,burst=1s": func(l *azsim.Limits) {
			l.Queue, l.QueueAccount, l.TableAccount = azsim.Unlimited, 7, 8
			l.GetCost, l.Burst = 1, time.Second
		},
	} {
		l := published
		want(&l)
		got, err := ParseLimits(text)
		if err != nil || got != l || !IsLimits(text) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"publishd": "published", "queues=1": "queueAccount", "queue=": "positive", "queue=-1": "queue",
		"queue=1,queue=2": "twice", "queue=1e-9": "0.001", "queue=1e300": "queue", "": "none",
	} {
		proof.Says(t, proof.ErrOf(ParseLimits(text)), says, text, "something")
	}
	for _, file := range []string{"limits.json", "./a=b.json", "/tmp/x=1", `C:\a=b`} {
		if IsLimits(file) {
			t.Errorf("the file %s is taken for limits", file)
		}
	}
}
