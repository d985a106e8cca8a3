package failure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// must ends a test with an error.
var must = proof.Must

// root is the folder of the module.
const root = "../../.."

// tables reads docs/failures.md: by party the cells of its rows, the way to fail first.
func tables(t *testing.T) map[string][][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "failures.md"))
	must(t, err)
	of, party := map[string][][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "## "); ok {
			party = name
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| way to fail ") || party == "" {
			continue
		}
		var r []string
		line = strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(line, `\|`, "/"), "|"), "|")
		for cell := range strings.SplitSeq(line, "|") {
			r = append(r, strings.TrimSpace(cell))
		}
		of[party] = append(of[party], r)
	}
	return of
}

// fault makes an account fail; a get of its message meets that.
type fault func(t *testing.T, s *azsim.Sim) (do string)

func answers(status int, code string) fault {
	return func(_ *testing.T, s *azsim.Sim) string {
		s.Inject(azsim.Rule{Fault: azsim.Answer, Status: status, Code: code})
		return "put"
	}
}

func fails(kind azsim.FaultKind) fault {
	return func(_ *testing.T, s *azsim.Sim) string {
		r := azsim.Rule{Fault: kind}
		if kind == azsim.DelayBefore {
			r.Delay = time.Minute
		}
		s.Inject(r)
		return "put"
	}
}

// provoke gives the error that the driver makes of a fault.
func provoke(t *testing.T, f fault) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := azsim.New(azsim.Config{Seed: 1, Accounts: []azsim.Account{{Name: "accounta"}}})
		a, e := azure.Open(azure.Options{ConnectionString: s.ConnectionString("accounta"), Transport: s.Transport()})
		must(t, e)
		q := a.Queue("work-00")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		must(t, q.Create(ctx))
		receipt, e := q.Put(ctx, []byte("text"), 0)
		must(t, e)
		switch f(t, s) {
		case "delete twice":
			must(t, q.Delete(ctx, receipt))
			err = q.Delete(ctx, receipt)
		case "put into none":
			_, err = a.Queue("none").Put(ctx, []byte("text"), 0)
		case "load":
			_, err = workload.Load(ctx, a.Table("queuepump"), "city")
		case "canceled":
			cancel()
			_, err = q.Put(ctx, []byte("text"), 0)
		default:
			_, err = q.Put(ctx, []byte("text"), 0)
		}
	})
	if err == nil {
		t.Error("nothing failed")
	}
	return err
}

func does(what string) fault { return func(*testing.T, *azsim.Sim) string { return what } }

func dark(_ *testing.T, s *azsim.Sim) string {
	s.Blackout("accounta", true)
	return "put"
}

// cell is what a row of a table is about.
type cell struct {
	of    []Party
	at    []Stake
	fault fault
	err   error // if no fault of an account makes it
}

var (
	all    = []Stake{Command, Service, Work, Hold}
	begins = []Stake{Command, Service}
	works  = []Stake{Work, Hold}
	free   = []Stake{Command, Service, Work}
	held   = []Stake{Hold}

	key, right     = answers(403, "AuthenticationFailed"), answers(403, "AuthorizationPermissionMismatch")
	disabled, busy = answers(403, "AccountIsDisabled"), answers(503, "ServerBusy")
	missing        = answers(404, "TableNotFound")
	invalid        = answers(400, "InvalidInput")
	gone, canceled = does("delete twice"), does("canceled")

	errNone   = &pump.ConfigError{Field: "accounts", Problem: "no credentials"}
	errRolled = fmt.Errorf("the map: %w", workload.ErrRolledBack)
)

// cells are the rows of the tables of storage that the policy decides.
func cells() map[string]map[string]cell {
	control, one, each := []Party{ControlAccount}, []Party{DataAccount}, []Party{AllAccounts}
	queue, data := []Party{Queue}, []Party{DataAccount, AllAccounts}
	ledger, answered := []Party{Partition}, []Party{DataAccount, AllAccounts, Quarantine}
	return map[string]map[string]cell{
		"Control account": {
			"silent": {control, all, dark, nil}, "slow": {control, all, fails(azsim.DelayBefore), nil}, "hangs": {control, all, fails(azsim.HangAfter), nil},
			"throttles": {control, all, busy, nil}, "says not now": {control, all, answers(500, "OperationTimedOut"), nil},
			"refuses key or signature, at a start":     {control, begins, key, nil},
			"refuses key or signature, in work":        {control, works, key, nil},
			"lacks a right, a command begins":          {control, []Stake{Command}, right, nil},
			"lacks a right, else":                      {control, []Stake{Service, Work, Hold}, right, nil},
			"missing: its table is deleted":            {control, all, missing, nil},
			"disabled":                                 {control, all, disabled, nil},
			"gone for good":                            {control, all, fails(azsim.FailBefore), nil},
			"lies or rolls back":                       {control, []Stake{Work}, nil, errRolled},
			"repeats a write whose answer was lost":    {control, all, fails(azsim.AnswerLost), nil},
			"says that a row is not there":             {control, all, gone, nil},
			"refuses a request as invalid, at a start": {control, begins, invalid, nil},
			"refuses a request as invalid, in work":    {control, works, invalid, nil},
			"the caller ends the request":              {control, all, canceled, nil},
			"its workload was deleted, or made again":  {control, all, nil, pump.ErrNoWorkload},
		},
		"Data account": {
			"silent": {one, free, dark, nil}, "hangs": {one, free, fails(azsim.HangBefore), nil},
			"slow": {one, free, fails(azsim.DelayBefore), nil}, "silent, all accounts": {each, all, dark, nil},
			"throttles": {data, all, busy, nil}, "says not now": {data, all, answers(429, "Busy"), nil},
			"refuses key or signature":                           {one, free, key, nil},
			"refuses key or signature, all accounts, at a start": {each, begins, key, nil},
			"refuses key or signature, all accounts, in work":    {each, works, key, nil},
			"lacks a right": {one, free, right, nil}, "lacks a right, all accounts": {each, all, right, nil},
			"disabled": {one, free, disabled, nil}, "disabled, all accounts": {each, all, disabled, nil},
			"missing in the credentials of this process":                           {one, free, nil, errNone},
			"missing in the credentials of this process, all accounts, at a start": {each, begins, nil, errNone},
			"missing in the credentials of this process, all accounts, in work":    {each, works, nil, errNone},
			"the caller ends the request":                                          {answered, all, canceled, nil},
		},
		"Queue": {
			"silent, or hangs": {queue, free, fails(azsim.HangBefore), nil}, "slow": {queue, free, fails(azsim.DelayBefore), nil},
			"throttles, or says not now": {queue, all, busy, nil}, "refuses": {queue, free, right, nil},
			"missing, or gone for good":                                    {[]Party{DataAccount, Queue}, free, does("put into none"), nil},
			"missing, all queues":                                          {each, free, does("put into none"), nil},
			"missing, with a message in hand":                              {[]Party{DataAccount, Queue, AllAccounts}, held, does("put into none"), nil},
			"its account is disabled":                                      {queue, free, disabled, nil},
			"lies or rolls back: a message is gone from under its receipt": {[]Party{DataAccount, Queue, AllAccounts}, held, gone, nil},
			"refuses a put as invalid":                                     {[]Party{DataAccount, Queue, AllAccounts}, free, invalid, nil},
			"refuses a request as invalid, with a message in hand":         {[]Party{DataAccount, Queue, AllAccounts}, held, invalid, nil},
			"the caller ends the request":                                  {queue, all, canceled, nil},
		},
		"Ledger partition": {
			"slow": {ledger, all, fails(azsim.DelayBefore), nil}, "it throttles, or answers 5xx": {ledger, all, busy, nil},
			"lies or rolls back; missing, or gone for good: its rows come back as they were, or are gone": {ledger, all, gone, nil}, "lies: a row of it cannot be read": {ledger, all, nil, row.ErrCorrupt}, "repeats: the answer to a commit is lost, or it lands late": {ledger, all, fails(azsim.AnswerLost), nil},
			"the caller ends the request": {ledger, all, canceled, nil},
		},
		"One row": {
			"lies: it cannot be read": {control, works, nil, row.ErrCorrupt}, "lies: it cannot be read, and what begins needs it": {control, begins, nil, row.ErrCorrupt}, "repeats: a write of it lands late, or its answer is lost": {control, all, fails(azsim.AnswerLost), nil}, "fails in another way, and is a help only": {[]Party{Help}, all, nil, errNone},
		},
	}
}

// Each cell of the tables of storage is what the policy decides of the error that the fault makes.
func TestWhatTheTablesOfFailuresSayIsDecided(t *testing.T) {
	read, reached := tables(t), [parties][kinds][stakes]bool{}
	note := func(party, way string, c cell) {
		var stored []string
		for _, r := range read[party] {
			if way == r[0] {
				stored = r
			}
		}
		if len(stored) < 6 {
			t.Errorf("%s has no row %q of six cells", party, way)
			return
		}
		err := c.err
		if c.fault != nil {
			err = provoke(t, c.fault)
		}
		for _, of := range c.of {
			for _, at := range c.at {
				d := Decide(of, err, at)
				reached[of][d.Kind][at] = true
				if !strings.HasPrefix(stored[1], "**"+d.Do.String()+"**") {
					t.Errorf("%s, %s, at stake %d: the table says %q, and %v is decided of %v", party, way, at, stored[1], d.Do, err)
				}
				said := map[time.Duration]string{0: "", RightPatience: "after 15 min", ThereAgain: "for a minute"}[d.Patience]
				if !strings.Contains(stored[1], said) || d.Patience != 0 && said == "" {
					t.Errorf("%s, %s: the table does not say that it ends after %v", party, way, d.Patience)
				}
			}
		}
	}
	byParty := cells()
	for party, rows := range byParty {
		for way, c := range rows {
			note(party, way, c)
		}
	}
	// Rows of several ways to fail.
	several := func(party, way string, of []Party, at []Stake, faults ...fault) {
		for _, f := range faults {
			note(party, way, cell{of, at, f, nil})
		}
	}
	inHand := "refuses, is silent or disabled, with a message in hand"
	several("Data account", inHand, []Party{DataAccount, Queue}, held, dark, key, right, disabled)
	several("Queue", inHand, []Party{DataAccount, Queue}, held, dark, key, right, disabled)
	several("Data account", "refuses, is disabled, or is silent for one processor alone", []Party{DataAccount, Queue}, free, dark, key, right, disabled)
	several("Control account", "disabled", []Party{ControlAccount}, all, func(t *testing.T, s *azsim.Sim) string {
		disabled(t, s)
		return "load" // not: there is no workload
	})
	looks := ", and a command looks for failed tasks in it"
	note("Data account", "silent, or throttles"+looks, cell{[]Party{Quarantine}, all, nil, context.DeadlineExceeded})
	several("Data account", "silent, or throttles"+looks, []Party{Quarantine}, all, dark, busy)
	several("Data account", "refuses, is disabled or missing"+looks, []Party{Quarantine}, all, key, right, disabled, missing, invalid, gone)
	several("Ledger partition", "silent, hangs, throttles, says not now or refuses", []Party{Partition}, all, dark, fails(azsim.HangBefore), busy, key, right)
	several("Ledger partition", "disabled, without its table, or refuses a request as invalid", []Party{Partition}, all, disabled, missing, invalid)
	several("One row", "refuses what is a help only", []Party{Help}, all, key, right)
	note("One row", "fails in another way, and is a help only", cell{[]Party{Help}, all, nil, row.ErrCorrupt})
	several("One row", "fails in another way, and is a help only", []Party{Help}, all, dark, busy, disabled, missing, invalid, gone, canceled)
	// What is of an account is of its queues, too.
	several("Queue", "refuses", []Party{Queue}, free, key)
	note("Data account", "missing in the credentials of this process", cell{[]Party{Queue}, free, nil, errNone})
	for of := range parties {
		for kind := range kinds {
			for at := range stakes {
				switch {
				case policy[of][kind][at] == 0:
					t.Errorf("party %d, kind %d, stake %d is not decided", of, kind, at)
				case kind == Unknown && of != ControlAccount && of < Quarantine, kind == Gone && of < Partition && at != Hold,
					kind == Mistake && (of >= Quarantine || at == Hold): // no storage answers so
				case !reached[of][kind][at]:
					t.Errorf("no row of docs/failures.md is about party %d, kind %d, stake %d", of, kind, at)
				}
			}
		}
	}
}

// What an operator may do is said with the decision, and so is what concerns the whole account.
func TestADecisionSaysWhatToDo(t *testing.T) {
	of := func(code storage.Code, service string) error { return &storage.Error{Code: code, Service: service} }
	for _, c := range []struct {
		err   error
		fix   string
		whole bool
	}{
		{of(storage.Auth, "AuthenticationFailed"), "Storage Queue Data Contributor", true},
		{of(storage.Missing, "AccountIsDisabled"), "enable the account", true},
		{of(storage.Missing, "QueueNotFound"), "distributor runs repair", false},
		{of(storage.MaybeDone, ""), "", true},
		{of(storage.Throttled, "ServerBusy"), "", false},
		{errors.New("another"), "", true},
	} {
		if d := Decide(DataAccount, c.err, Work); c.fix == "" && d.Fix != "" || !strings.Contains(d.Fix, c.fix) || d.Whole != c.whole {
			t.Errorf("%v: %+v", c.err, d)
		}
	}
	for party, service := range map[Party]string{ControlAccount: "AuthorizationFailure", Partition: "AuthenticationFailed", Help: "AuthorizationFailure"} {
		if d := Decide(party, of(storage.Auth, service), Service); !strings.Contains(d.Fix, "Storage Table Data Contributor") {
			t.Errorf("%+v", d)
		}
	}
}

// Each row of each table has all cells, and what it says to be its proof is a test, or a kind of
// simulated worlds.
func TestEachProofOfTheTablesOfFailuresExists(t *testing.T) {
	is, kindOf := map[string]bool{}, regexp.MustCompile(`\{name: "([^"]+)"`)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "out" || e.Name() == "node_modules"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		for _, m := range function.FindAllSubmatch(text, -1) {
			is[string(m[1])] = true
		}
		if strings.HasSuffix(name, "simulation_kinds_test.go") {
			for _, m := range kindOf.FindAllSubmatch(text, -1) {
				is[string(m[1])] = true
			}
		}
		return err
	})
	must(t, err)
	quoted := regexp.MustCompile("`([^`]+)`")
	for party, rows := range tables(t) {
		for _, r := range rows {
			absent := strings.Contains(r[min(1, len(r)-1)], " occur") // which says why
			if len(r) != 6 || slices.Contains(r, "") && !absent || absent && !strings.Contains(r[1], ": ") {
				t.Errorf("%s, %s: %d cells, or an empty one without its reason", party, r[0], len(r))
				continue
			}
			proofs := quoted.FindAllStringSubmatch(r[5], -1)
			if len(proofs) == 0 && !absent {
				t.Errorf("%s, %s: nothing proves it", party, r[0])
			}
			for _, m := range proofs {
				name := m[1][strings.LastIndex(m[1], ".")+1:]
				if name, _, _ = strings.Cut(name, "/"); !is[name] {
					t.Errorf("%s, %s: there is neither test nor kind of worlds %q", party, r[0], m[1])
				}
			}
		}
	}
}

// The table of each party names each way to fail, be it to say that it does not occur and why.
func TestEachTableOfFailuresNamesEachWayToFail(t *testing.T) {
	read := tables(t)
	proof.Same(t, len(read), 15, "there are … parties")
	for party, rows := range read {
		ways := []string{"silent", "slow", "hangs", "throttles", "says not now", "refuses", "missing", "gone for good", "lies|rolls back", "repeats"}
		if slices.Contains([]string{"Control account", "Data account", "Queue", "Ledger partition", "One row"}, party) {
			ways = append(ways, "disabled")
		}
		for _, way := range ways {
			named := regexp.MustCompile(`\b(` + way + `)\b`)
			if !slices.ContainsFunc(rows, func(r []string) bool { return named.MatchString(r[0]) }) {
				t.Errorf("%s: no row says what follows if it is so: %s", party, way)
			}
		}
	}
}

func (a Action) String() string {
	return [...]string{"undecided", "wait", "go round", "give back", "end"}[a]
}
