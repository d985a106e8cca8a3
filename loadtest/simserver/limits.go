package simserver

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// accountLimit stands for the limits of an account's queues and of its tables.
const accountLimit = "account"

var limitsList = regexp.MustCompile(`^[A-Za-z]+=[^=/\\]*(,[A-Za-z]+=[^=/\\]*)*$`)

// IsLimits reports whether a text has the form that ParseLimits reads, be it right or wrong.
func IsLimits(text string) bool {
	return text == "published" || text == "none" || limitsList.MatchString(text)
}

// ParseLimits reads limits as people type them: published, none, or a list such as
// queue=500,account=5000. The names are the fields of azsim.ParseLimits; account stands for both
// queueAccount and tableAccount; what is left out is as published.
func ParseLimits(text string) (azsim.Limits, error) {
	switch {
	case text == "published":
		return azsim.PublishedLimits(), nil
	case text == "none":
		return azsim.NoLimits(), nil
	case !limitsList.MatchString(text):
		return azsim.Limits{}, fmt.Errorf(
			"%q are no limits; want published, none, or a list such as queue=500,account=5000",
			clipped(text))
	}
	object := map[string]json.RawMessage{}
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		if _, twice := object[name]; twice {
			return azsim.Limits{}, fmt.Errorf("limits: %s stands there twice", name)
		}
		raw := json.RawMessage(value)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(value) // a string has no error
		}
		object[name] = raw
	}
	if v, ok := object[accountLimit]; ok {
		delete(object, accountLimit)
		for _, name := range []string{"queueAccount", "tableAccount"} {
			if _, twice := object[name]; !twice {
				object[name] = v
			}
		}
	}
	data, err := json.Marshal(object)
	if err != nil {
		return azsim.Limits{}, err
	}
	return readLimits(data)
}

// The rates that the simulator can keep to: their tokens are whole nanoseconds.
const (
	leastRate = 0.001
	mostRate  = 1e9
)

// readLimits reads the JSON of azsim.ParseLimits.
func readLimits(data []byte) (azsim.Limits, error) {
	l, err := azsim.ParseLimits(data)
	if err != nil {
		return l, err
	}
	for name, r := range map[string]azsim.Rate{
		"queue": l.Queue, "queueAccount": l.QueueAccount,
		"tablePartition": l.TablePartition, "tableAccount": l.TableAccount,
	} {
		if r != azsim.Unlimited && (r < leastRate || r > mostRate) {
			return azsim.Limits{}, fmt.Errorf("limits: field %q: want %v to %v a second, got %v",
				name, leastRate, mostRate, r)
		}
	}
	return l, nil
}
