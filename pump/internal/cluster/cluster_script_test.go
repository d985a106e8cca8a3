package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// A cluster script is a history that a person can read: one step a line, # for
// remarks. testdata/*.cluster are written by hand; clusterScriptOf writes one for
// a seed. Settings come first:
//
//	seed 7          what chance is made of: latencies, jitter, nonces, which answer is lost
//	accounts 2      storage accounts acct01, acct02, ... of the map
//	queues 4        queues of each
//	segments 64
//	many 2          of more than so many members two look for all, and the others read what
//	                those write down
//	pages 3         a table query ends its page after so many rows looked at, so that a view is
//	                not of one moment
//	work 5s         handlers still have work of a segment in hand for up to so long when it is
//	                handed over
//	nudges off      no member tells another to look
//
// and then what happens, each at once unless it is a wait:
//
//	join 1-3 5      machines start a process, which becomes a member and stands for election
//	watch 4         a machine starts a member that takes no segments (a distributor)
//	leave 2         in good order, in the background
//	crash 2         the process is gone, with what it had not sent
//	restart 2       crash (unless that happened already) and join
//	pause 1 40s     a stopped process: what it was about to send is sent later, what it was sent
//	                is looked at later
//	partition 1 40s nothing that it sends arrives, by failing or by hanging
//	slow 1 40s      each request takes up to 3 s longer
//	lose 1-3 30% 9s a share of the requests goes wrong: lost before or after it acted, refused,
//	                cut, hung, late
//	fault 1 lost present. 2   the next 2 writes of rows with that prefix: lost (acted), broken
//	                (did not), refused (503, did not), hung (did not, no answer), late (told that
//	                it failed, lands seconds later)
//	clock 1 +10m    the machine's wall clock; "clock server -10m" the service's
//	drift 1 -10%    the speed of the machine's clocks, before it joins
//	dark 1m         the control account answers no member
//	drain acct02    add acct03: the map changes
//	mark 1 7 2      machine 1 marks choice 2 of segment 7 for spill; "unmark"
//	times 1 2s 4    its beat and, in beats, its lease are others from the next beat on
//	wait 30s
//	settle          wait until all that is above is over and each member has its share
//	check           each segment is held once, balanced (P5.5); right after settle
//	remember        who owns what; "unmoved": the same own the same as then, and none was evicted
//	                since
type clusterScript struct {
	seed                       uint64
	accounts, queues, segments int
	pages                      int
	work                       time.Duration
	quiet                      bool // nudges off
	many                       int  // beyond so many members they read musters; 0: as it is
	steps                      []clusterStep
}

type clusterStep struct {
	verb     string
	machines []int // from 1; 0 is the server
	span     time.Duration
	number   int    // a share or drift in percent, a count, a segment
	second   int    // the choice of mark
	word     string // an account, a kind of fault
	row      string // what a fault hits
}

// clusterVerbs names the arguments of each verb, in order: m machines, d a
// duration, o an offset, p percent, s a share, n and N counts, a an account,
// k a kind of fault, r a row's prefix.
var clusterVerbs = map[string]string{
	"join": "m", "watch": "m", "leave": "m", "crash": "m", "restart": "m",
	"pause": "md", "partition": "md", "slow": "md", "lose": "msd", "fault": "mkrn",
	"clock": "mo", "drift": "mp", "dark": "d", "drain": "a", "add": "a",
	"mark": "mnN", "unmark": "mnN", "times": "mdn", "wait": "d", "settle": "", "check": "", "remember": "", "unmoved": "",
}

var clusterFaults = []string{"lost", "broken", "refused", "hung", "late"}

const clusterMachines = 99 // numbers go up to it

// parseClusterScript reads a script; every error names its line.
func parseClusterScript(text string) (*clusterScript, error) {
	s := &clusterScript{seed: 1, accounts: 2, queues: 4, segments: 64}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := s.line(words[0], words[1:]); err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", i+1, strings.Join(words, " "), err)
		}
	}
	return s, nil
}

func (s *clusterScript) line(verb string, args []string) error {
	kinds, ok := clusterVerbs[verb]
	if !ok {
		return s.setting(verb, args)
	}
	step := clusterStep{verb: verb}
	if strings.HasPrefix(kinds, "m") {
		several := len(args) - (len(kinds) - 1)
		if several < 1 {
			return fmt.Errorf("%s needs %d arguments or more", verb, len(kinds))
		}
		for _, arg := range args[:several] {
			if err := step.machine(arg); err != nil {
				return err
			}
		}
		kinds, args = kinds[1:], args[several:]
	}
	if len(args) != len(kinds) {
		return fmt.Errorf("%s needs %d arguments", verb, len(clusterVerbs[verb]))
	}
	for i, kind := range kinds {
		if err := step.argument(kind, args[i]); err != nil {
			return err
		}
	}
	s.steps = append(s.steps, step)
	return nil
}

func (s *clusterScript) setting(name string, args []string) (err error) {
	if len(s.steps) > 0 {
		return errors.New("no such step; settings come before the first step")
	}
	if len(args) != 1 {
		return errors.New("a setting has one value")
	}
	numbers := map[string]*int{
		"accounts": &s.accounts, "queues": &s.queues, "segments": &s.segments, "many": &s.many, "pages": &s.pages,
	}
	if to := numbers[name]; to != nil {
		most := map[string]int{"accounts": 20, "queues": 16, "segments": 4096, "many": 1000, "pages": 1000}[name]
		if *to, err = strconv.Atoi(args[0]); err == nil && (*to < 1 || *to > most) {
			err = fmt.Errorf("must be 1 to %d", most)
		}
		return err
	}
	switch name {
	case "seed":
		s.seed, err = strconv.ParseUint(args[0], 10, 64)
	case "work":
		s.work, err = time.ParseDuration(args[0])
	case "nudges":
		if s.quiet = args[0] == "off"; !s.quiet {
			err = errors.New("nudges can only be off")
		}
	default:
		err = errors.New("no such step or setting")
	}
	return err
}

func (s *clusterStep) machine(arg string) error {
	if arg == "server" && s.verb == "clock" {
		s.machines = append(s.machines, 0)
		return nil
	}
	from, to, many := strings.Cut(arg, "-")
	if !many {
		to = from
	}
	a, err := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if err != nil || err2 != nil || a < 1 || b > clusterMachines || a > b {
		return fmt.Errorf("%q is no machine (1 to %d, or a range 2-5)", arg, clusterMachines)
	}
	for n := a; n <= b; n++ {
		if slices.Contains(s.machines, n) {
			return fmt.Errorf("machine %d is named twice", n)
		}
		s.machines = append(s.machines, n)
	}
	return nil
}

func (s *clusterStep) argument(kind rune, arg string) (err error) {
	switch kind {
	case 'd', 'o':
		if s.span, err = time.ParseDuration(arg); err == nil && kind == 'd' && (s.span <= 0 || s.span > time.Hour) {
			err = errors.New("must be above 0 and at most an hour")
		}
	case 'p', 's':
		number, ok := strings.CutSuffix(arg, "%")
		if !ok {
			return fmt.Errorf("%q has no %%", arg)
		}
		if s.number, err = strconv.Atoi(number); err != nil {
			return err
		}
		if least, most := map[rune]int{'p': -20}[kind], map[rune]int{'p': 20, 's': 100}[kind]; s.number < least || s.number > most {
			err = fmt.Errorf("must be %d%% to %d%%", least, most)
		}
	case 'n':
		s.number, err = strconv.Atoi(arg)
	case 'N':
		s.second, err = strconv.Atoi(arg)
	case 'a':
		s.word = arg
		if n, ok := strings.CutPrefix(arg, "acct"); !ok || len(n) != 2 {
			err = errors.New("accounts are acct01, acct02, ...")
		}
	case 'k':
		s.word = arg
		if !slices.Contains(clusterFaults, arg) {
			err = fmt.Errorf("%q is none of %s", arg, strings.Join(clusterFaults, ", "))
		}
	case 'r':
		s.row = arg
	}
	return err
}

func (s clusterStep) String() string {
	words := []string{s.verb}
	for i := 0; i < len(s.machines); i++ {
		n := s.machines[i]
		last := i
		for last+1 < len(s.machines) && s.machines[last+1] == s.machines[last]+1 {
			last++
		}
		switch {
		case n == 0:
			words = append(words, "server")
		case last > i+1:
			words = append(words, fmt.Sprintf("%d-%d", n, s.machines[last]))
			i = last
		default:
			words = append(words, strconv.Itoa(n))
		}
	}
	for _, kind := range strings.TrimPrefix(clusterVerbs[s.verb], "m") {
		switch kind {
		case 'd':
			words = append(words, s.span.String())
		case 'o':
			words = append(words, fmt.Sprintf("%+.0fs", s.span.Seconds()))
		case 'p':
			words = append(words, fmt.Sprintf("%+d%%", s.number))
		case 's':
			words = append(words, fmt.Sprintf("%d%%", s.number))
		case 'n':
			words = append(words, strconv.Itoa(s.number))
		case 'N':
			words = append(words, strconv.Itoa(s.second))
		case 'a', 'k':
			words = append(words, s.word)
		case 'r':
			words = append(words, s.row)
		}
	}
	return strings.Join(words, " ")
}

// String is the script's text, which plays the same history again.
func (s *clusterScript) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\naccounts %d\nqueues %d\nsegments %d\n", s.seed, s.accounts, s.queues, s.segments)
	if s.many > 0 {
		fmt.Fprintf(&b, "many %d\n", s.many)
	}
	if s.pages > 0 {
		fmt.Fprintf(&b, "pages %d\n", s.pages)
	}
	if s.work > 0 {
		fmt.Fprintf(&b, "work %v\n", s.work)
	}
	if s.quiet {
		b.WriteString("nudges off\n")
	}
	for _, step := range s.steps {
		fmt.Fprintln(&b, step)
	}
	return b.String()
}

func TestAClusterScriptIsReadAsItIsWritten(t *testing.T) {
	for seed := range uint64(300) {
		text := clusterScriptOf(seed).String()
		again, err := parseClusterScript(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again.String() != text {
			t.Fatalf("seed %d:\n%s\nis read as\n%s", seed, text, again)
		}
	}
}

func TestAMistakeInAClusterScriptIsNamedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"join 1\n\nfrobnicate 2":     `line 3, "frobnicate 2": no such step`,
		"frobnicate 2":               `line 1, "frobnicate 2": no such step or setting`,
		"join":                       `line 1, "join": join needs 1 arguments or more`,
		"join 0":                     `"0" is no machine`,
		"join 3-1":                   `"3-1" is no machine`,
		"join 100":                   `"100" is no machine`,
		"join 1 1-2":                 "machine 1 is named twice",
		"pause 1":                    "pause needs 2 arguments or more",
		"pause 1 -3s":                "above 0",
		"pause 1 soon":               `invalid duration "soon"`,
		"join 1 # twice\nseed 4":     `line 2, "seed 4": no such step; settings come before the first step`,
		"segments 0":                 "must be 1 to 4096",
		"segments":                   "a setting has one value",
		"lose 1 30 9s":               `"30" has no %`,
		"lose 1 130% 9s":             "must be 0% to 100%",
		"drift 1 40%":                "must be -20% to 20%",
		"fault 1 eaten present. 1":   `"eaten" is none of lost, broken, refused, hung, late`,
		"drain north":                "accounts are acct01",
		"wait 1s 2s":                 "wait needs 1 arguments",
		"clock servers 3m":           `"servers" is no machine`,
		"crash server":               `"server" is no machine`,
		"nudges loud":                "nudges can only be off",
		"fault 1 lost present. many": `invalid syntax`,
	} {
		_, err := parseClusterScript(text)
		proof.Says(t, err, want, text)
	}
}
