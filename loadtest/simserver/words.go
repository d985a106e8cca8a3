package simserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The bounds of what a fault may say.
const (
	longest   = 1000 * time.Hour // of schedules
	longDelay = time.Hour
	mostTimes = 1_000_000_000 // of counts
)

// word is one name=value of a fault, in its text and in JSON.
type word struct {
	name  string
	read  func(f *Fault, text string) error
	show  func(f *Fault) any
	check func(f *Fault) error // a value that a Go program may have set
	unset func(f *Fault) bool
}

var words = []word{
	textWord("account", func(f *Fault) *string { return &f.Account }, plainName),
	textWord("service", func(f *Fault) *string { return &f.Service }, serviceName),
	operationsWord(),
	textWord("object", func(f *Fault) *string { return &f.Object }, plainName),
	textWord("partition", func(f *Fault) *string { return &f.Partition }, visibleText),
	textWord("client", func(f *Fault) *string { return &f.Client }, visibleText),
	rateWord(),
	intWord("skip", 0, mostTimes, func(f *Fault) *int { return &f.Skip }),
	intWord("first", 0, mostTimes, func(f *Fault) *int { return &f.First }),
	intWord("every", 0, mostTimes, func(f *Fault) *int { return &f.Every }),
	intWord("status", 400, 599, func(f *Fault) *int { return &f.Status }),
	textWord("code", func(f *Fault) *string { return &f.Code }, plainName),
	timeWord("retry-after", longDelay, func(f *Fault) *time.Duration { return &f.RetryAfter }),
	timeWord("by", longDelay, func(f *Fault) *time.Duration { return &f.By }),
	textWord("back", func(f *Fault) *string { return &f.Back }, fullOrEmpty),
	timeWord("from", longest, func(f *Fault) *time.Duration { return &f.From }),
	timeWord("for", longest, func(f *Fault) *time.Duration { return &f.For }),
	timeWord("repeat", longest, func(f *Fault) *time.Duration { return &f.Repeat }),
}

func textWord(name string, at func(*Fault) *string, judge func(string) error) word {
	return word{
		name: name,
		read: func(f *Fault, text string) error {
			*at(f) = text
			return judge(text)
		},
		show: func(f *Fault) any { return *at(f) },
		check: func(f *Fault) error {
			if *at(f) == "" {
				return nil
			}
			return judge(*at(f))
		},
		unset: func(f *Fault) bool { return *at(f) == "" },
	}
}

// plain is a name of an account, a queue, a table or an error code. A code becomes a header.
var plain = regexp.MustCompile(`^[A-Za-z0-9$-]{1,64}$`)

func plainName(text string) error {
	if !plain.MatchString(text) {
		return fmt.Errorf("%q is not a name: want 1 to 64 letters and digits", clipped(text))
	}
	return nil
}

// visible matches a text that can be typed as one word of a fault.
var visible = regexp.MustCompile(`^[!-~]{1,128}$`)

func visibleText(text string) error {
	if !visible.MatchString(text) {
		return fmt.Errorf("%q is not 1 to 128 visible characters of ASCII", clipped(text))
	}
	return nil
}

func fullOrEmpty(text string) error {
	if text != "full" && text != "empty" {
		return fmt.Errorf("%q is neither full nor empty", clipped(text))
	}
	return nil
}

func serviceName(text string) error {
	if text != "queue" && text != "table" {
		return fmt.Errorf("%q is not a service; known: queue, table", clipped(text))
	}
	return nil
}

func operationsWord() word {
	return word{
		name: "op",
		read: func(f *Fault, text string) error {
			f.Operations = strings.Split(text, ",")
			return nil // judged with the service, when all is read
		},
		show:  func(f *Fault) any { return f.Operations },
		check: func(*Fault) error { return nil },
		unset: func(f *Fault) bool { return len(f.Operations) == 0 },
	}
}

func rateWord() word {
	return word{
		name: "rate",
		read: func(f *Fault, text string) error {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil || !(v > 0 && v <= 1) {
				return fmt.Errorf("%q is not a share: want a number above 0 and at most 1, as 0.01",
					clipped(text))
			}
			f.Rate = v
			return nil
		},
		show: func(f *Fault) any { return f.Rate },
		check: func(f *Fault) error {
			if !(f.Rate >= 0 && f.Rate <= 1) {
				return fmt.Errorf("%v is not a share: want a number from 0 to 1", f.Rate)
			}
			return nil
		},
		unset: func(f *Fault) bool { return f.Rate == 0 },
	}
}

func intWord(name string, least, most int, at func(*Fault) *int) word {
	problem := func(what any) error {
		return fmt.Errorf("%v is not a whole number from %d to %d", what, least, most)
	}
	return word{
		name: name,
		read: func(f *Fault, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < least || n > most {
				return problem(strconv.Quote(clipped(text)))
			}
			*at(f) = n
			return nil
		},
		show: func(f *Fault) any { return *at(f) },
		check: func(f *Fault) error {
			if n := *at(f); n != 0 && (n < least || n > most) {
				return problem(n)
			}
			return nil
		},
		unset: func(f *Fault) bool { return *at(f) == 0 },
	}
}

func timeWord(name string, most time.Duration, at func(*Fault) *time.Duration) word {
	return word{
		name: name,
		read: func(f *Fault, text string) (err error) {
			*at(f), err = readDuration(text, most)
			return err
		},
		show: func(f *Fault) any { return at(f).String() },
		check: func(f *Fault) error {
			if d := *at(f); d < 0 || d > most {
				return fmt.Errorf("%v is not from 0s to %v", d, most)
			}
			return nil
		},
		unset: func(f *Fault) bool { return *at(f) == 0 },
	}
}

func readDuration(text string, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, fmt.Errorf("%q is not a duration from 0s to %v, such as 250ms or 20s",
			clipped(text), most)
	}
	return d, nil
}

// clipped bounds how much of a typed or sent text an error repeats.
func clipped(text string) string {
	const most = 80
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// ParseFault reads a fault as people type it: its kind, then name=value words, as in
//
//	lost-answer rate=0.01 op=PutMessage account=one
//	error status=500 every=10 op=GetMessages,DeleteMessage
//	dark account=two from=30s for=20s
//	delay by=2s service=table partition=work.ledger.01 from=1m for=10s repeat=5m
//	gone account=two from=30s for=20s back=empty
//
// [Kinds] lists the kinds. The error names the word that is wrong and what is known.
func ParseFault(text string) (Fault, error) {
	fields := strings.Fields(text)
	fail := func(err error) (Fault, error) {
		return Fault{}, fmt.Errorf("fault %q: %w", clipped(text), err)
	}
	if len(fields) == 0 {
		return fail(unknown("kind", "", namesOf(kinds, func(k kind) string { return k.name })))
	}
	f := Fault{Kind: fields[0]}
	if _, err := kindNamed(f.Kind); err != nil {
		return fail(err)
	}
	seen := map[string]bool{}
	for _, field := range fields[1:] {
		name, value, ok := strings.Cut(field, "=")
		switch {
		case !ok:
			return fail(fmt.Errorf("%q is not a name=value", clipped(field)))
		case seen[name]:
			return fail(fmt.Errorf("%s stands there twice", name))
		}
		seen[name] = true
		if err := f.read(name, value); err != nil {
			return fail(err)
		}
	}
	return f, nil
}

func (f *Fault) read(name, value string) error {
	i := slices.IndexFunc(words, func(w word) bool { return w.name == name })
	if i < 0 {
		return unknown("word", name, namesOf(words, func(w word) string { return w.name }))
	}
	if err := words[i].read(f, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// String is the text that ParseFault reads.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Kind)
	for _, w := range words {
		if w.unset(&f) {
			continue
		}
		v := w.show(&f)
		if list, ok := v.([]string); ok {
			v = strings.Join(list, ",")
		}
		fmt.Fprintf(&b, " %s=%v", w.name, v)
	}
	return b.String()
}

// MarshalJSON writes what UnmarshalJSON reads.
func (f Fault) MarshalJSON() ([]byte, error) {
	object := map[string]any{"fault": f.Kind}
	for _, w := range words {
		if !w.unset(&f) {
			object[w.name] = w.show(&f)
		}
	}
	return json.Marshal(object)
}

// UnmarshalJSON reads an object of the kind under "fault" and the words by their names: numbers,
// strings, and a list of strings for "op". The error names the field that is wrong.
func (f *Fault) UnmarshalJSON(data []byte) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil || object == nil {
		return errors.New(`want an object such as {"fault": "lost-answer", "rate": 0.01}`)
	}
	*f = Fault{}
	var err error
	if f.Kind, err = jsonText(object["fault"]); err != nil {
		return fmt.Errorf("fault: %w", err)
	}
	if _, err := kindNamed(f.Kind); err != nil {
		return err
	}
	delete(object, "fault")
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value, err := jsonText(object[name])
		if err == nil {
			err = f.read(name, value)
		} else {
			err = fmt.Errorf("%s: %w", clipped(name), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// jsonText is the text of a string, of a number, or of a list of strings.
func jsonText(raw json.RawMessage) (string, error) {
	var text string
	var number json.Number
	var list []string
	switch {
	case len(raw) == 0:
		return "", errors.New("it is missing")
	case string(raw) == "null":
		return "", errors.New("it is null")
	case json.Unmarshal(raw, &text) == nil:
		return text, nil
	case json.Unmarshal(raw, &number) == nil:
		return number.String(), nil
	case json.Unmarshal(raw, &list) == nil:
		return strings.Join(list, ","), nil
	}
	return "", fmt.Errorf("want a string, a number or a list of strings, got %s",
		clipped(string(raw)))
}
