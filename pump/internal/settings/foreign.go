package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/internal/foreign"
	"github.com/queuepump/queuepump/internal/redact"
	"github.com/queuepump/queuepump/pump"
)

// validQueue is the service's own rule for the name of a queue, with a length from 3 to 63.
var validQueue = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])+$`)

// checkForeign checks what is said of other programs' messages, and fills in what is not.
func checkForeign(c *pump.Config) error {
	Default(&c.ForeignEncoding, foreign.Auto)
	if !slices.Contains(foreign.Encodings, c.ForeignEncoding) {
		return pump.Invalid("foreign.encoding", redact.Quoted(c.ForeignEncoding)+" is no encoding",
			"use "+strings.Join(foreign.Encodings, ", ")+", or leave it out for auto")
	}
	own := regexp.MustCompile("^" + c.Workload + "-([0-9]{2}|poison)$")
	for i := range c.Accounts {
		a := &c.Accounts[i]
		a.Foreign = slices.Clone(a.Foreign)
		for j, name := range a.Foreign {
			problem, fix := "", ""
			switch {
			case len(name) < 3 || len(name) > 63 || !validQueue.MatchString(name):
				problem = redact.Quoted(name) + " is no queue's name"
				fix = "use 3 to 63 of a-z, 0-9 and single dashes, neither first nor last"
			case own.MatchString(name):
				problem = fmt.Sprintf("%q is a queue of workload %q itself", name, c.Workload)
				fix = "leave it out: processors read it"
			case slices.Contains(a.Foreign[:j], name):
				problem, fix = fmt.Sprintf("%q is there twice", name), "remove one"
			default:
				continue
			}
			return pump.Invalid(fmt.Sprintf("accounts[%d].foreignQueues", i), problem, fix)
		}
	}
	return nil
}
